"""Generate the tokens after prompts, one at a time.

The input is a model, token ids and how to sample; the output is token ids. This module
knows nothing about text.
"""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.decoding.prompts import (
    Prompts,
    checked_prompts,
    checked_stops,
    validate_count,
)
from tested_transformer.decoding.readers import Reader, fit, reader_for
from tested_transformer.decoding.sampling import (
    Sampling,
    draw,
    penalize_repetition,
    resolve_seed,
)
from tested_transformer.decoding.stopping import StopFilter
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of

__all__ = ["generate", "stream"]


def generate(
    model: GPT | Reader,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    stop: Iterable[Iterable[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Return the new tokens after each prompt.

    Each row of the batch gets the tokens that it would get alone with its seed, however
    long the other rows are. When a row outgrows the model's context, its last half is
    read again from position 0; see ``fit``.

    Args:
        model: The model; or a reader for it, such as a ``Decoder``, which is faster, or
            a reader of ``decoding.cache_readers``.
        prompts: Token ids of each prompt, at least one: lists, or a tensor.
        max_new_tokens: How many tokens to add to each, unless it stops earlier.
        sampling: How to choose tokens; ``Sampling()`` by default, which draws from the
            model's own probabilities.
        stop: Sequences of tokens that end an answer; they are not part of it.
        seed: Row r draws with the seed ``seed + r``. By default it is drawn from
            PyTorch's global generator.
        use_cache: Keep keys and values of earlier tokens. Without a cache each token
            takes a pass over the whole text; the answer is the same. A reader has its
            own way.

    Raises:
        TypeError: If an argument has the wrong type, such as text for a prompt.
        ValueError: If a setting is out of its range, a prompt is empty or contains
            something other than token ids of the model, or the logits are NaN.
    """
    prompts = checked_prompts(prompts, _model_of(model).config.vocab_size)
    steps = stream(
        model,
        prompts,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop=stop,
        seed=seed,
        use_cache=use_cache,
    )
    answers: list[list[int]] = [[] for _ in prompts]
    for released in steps:
        for answer, tokens in zip(answers, released, strict=True):
            answer += tokens
    return answers


def stream(
    model: GPT | Reader,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    stop: Iterable[Iterable[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the tokens of ``generate``, which has the same arguments, as they come.

    Each step yields one tuple for each prompt, usually of one token. It is empty after
    the end, and while the latest tokens may be the start of a stop sequence.

    Raises:
        TypeError: For the same reasons as ``generate``, before the first token.
        ValueError: For the same reasons as ``generate``, before the first token.
    """
    # This is not a generator, so that wrong arguments raise here, not in a later loop.
    gpt = _model_of(model)
    contexts = checked_prompts(prompts, gpt.config.vocab_size)
    validate_count(max_new_tokens=max_new_tokens)
    sampling = Sampling() if sampling is None else sampling
    if not isinstance(sampling, Sampling):
        kind = type(sampling).__name__
        raise TypeError(f"sampling must be a Sampling(...); it is a {kind}")
    stops = checked_stops(stop)
    filters = [StopFilter(stops, ()) for _ in contexts]
    reader = _reader(model, use_cache)
    chooser = _Chooser(contexts, gpt, sampling, resolve_seed(seed))
    steps = _steps(reader, contexts, max_new_tokens, chooser)
    return _filtered(steps, filters) if stops else steps


def _model_of(model: GPT | Reader) -> GPT:
    """Return the model behind a reader; raise a ``TypeError`` if there is none."""
    gpt = model if isinstance(model, GPT) else getattr(model, "model", None)
    if isinstance(gpt, GPT):
        return gpt
    came = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
    raise TypeError(f"model must be a GPT or a reader for one; it is {came}")


def _reader(model: GPT | Reader, use_cache: bool) -> Reader:
    if isinstance(model, GPT):
        return reader_for(model, use_cache=use_cache)
    if not use_cache:
        raise ValueError(
            f"use_cache=False does not fit a {type(model).__name__}: pass its model"
        )
    return model


def _steps(
    reader: Reader, contexts: list[list[int]], max_new_tokens: int, chooser: "_Chooser"
) -> Iterator[list[tuple[int, ...]]]:
    """Yield, step by step, the next token of each row as a tuple of one."""
    tokens: Tensor | None = None  # read to the end of the contexts if there are none
    for count in range(1, max_new_tokens + 1):
        if tokens is None:
            contexts = [fit(context, reader.longest) for context in contexts]
            logits = reader.read(contexts)
            if logits.isnan().any():  # asked here alone: a GPU is waited for
                raise ValueError("the model's logits are NaN: look at its weights")
            tokens = chooser.choose(logits)
        coming, tokens = _Coming(tokens), None
        more = count < max_new_tokens and max(map(len, contexts)) < reader.longest
        if more and coming.are_late:
            tokens = chooser.choose(reader.step(coming.tokens))
        new = coming.tolist()
        for context, token in zip(contexts, new, strict=True):
            context.append(token)
        yield [(token,) for token in new]
        if more and tokens is None:
            tokens = chooser.choose(reader.step(coming.tokens))


class _Coming:
    """Tokens on their way to the host.

    A GPU has work while the host waits if the next step is started before, so the host
    reads each token one step late. If the token ends the text, a step was in vain,
    which costs less than the waiting. A CPU would do the step first, and deliver each
    token later.
    """

    def __init__(self, tokens: Int[Tensor, "B"]) -> None:
        self.tokens = tokens
        self.are_late = tokens.is_cuda
        self.copied = tokens.to("cpu", non_blocking=tokens.is_cuda)
        if tokens.is_cuda:
            self.arrival = torch.cuda.Event()
            self.arrival.record(torch.cuda.current_stream(tokens.device))

    def tolist(self) -> list[int]:
        """Wait for the tokens, but for nothing started since; return them."""
        if self.tokens.is_cuda:
            self.arrival.synchronize()
        return self.copied.tolist()


def _filtered(
    steps: Iterator[list[tuple[int, ...]]], filters: list[StopFilter[tuple[int, ...]]]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the tokens of each row up to its first stop sequence."""
    for new in steps:
        yield [row.feed(token) for row, token in zip(filters, new, strict=True)]
        if all(row.stopped for row in filters):
            return
    yield [row.finish() for row in filters]


class _Chooser:
    """Choose the next token of each row from its logits."""

    def __init__(
        self, contexts: list[list[int]], model: GPT, sampling: Sampling, seed: int
    ) -> None:
        device = numbers_of(model).device
        self.sampling = sampling
        self.seen = torch.zeros(
            len(contexts), model.config.vocab_size, dtype=torch.bool, device=device
        )
        for row, context in zip(self.seen, contexts, strict=True):
            row[context] = True
        self.generators = [
            torch.Generator(device).manual_seed(seed + row)
            for row in range(len(contexts))
        ]

    @torch.inference_mode()
    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """Return one token for each row."""
        penalty = self.sampling.repetition_penalty
        if penalty != 1.0:
            logits = penalize_repetition(logits, self.seen, penalty)
        if self.sampling.temperature == 0.0:
            tokens = logits.argmax(dim=-1)
        else:
            tokens = draw(self.sampling.probabilities(logits), self.generators)
        if penalty != 1.0:
            self.seen.scatter_(1, tokens[:, None], True)
        return tokens
