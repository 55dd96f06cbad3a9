"""Generate the tokens after prompts, one at a time.

The input is a model, token ids and how to sample; the output is token ids. This module
knows nothing about text.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import index
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.decoding.cache_readers import PagedReader
from tested_transformer.decoding.fast.decoder import Decoder
from tested_transformer.decoding.fast.packing import PackingError
from tested_transformer.decoding.readers import (
    CachedReader,
    EqualLengthsReader,
    WholeReader,
    fit,
)
from tested_transformer.decoding.sampling import Sampling, draw, penalize_repetition
from tested_transformer.decoding.stopping import StopWatch
from tested_transformer.gpt import GPT
from tested_transformer.habits import WRITING_SETTINGS
from tested_transformer.inspection import numbers_of

__all__ = ["generate", "stream"]

Reader = CachedReader | Decoder | EqualLengthsReader | PagedReader | WholeReader
Prompts = Iterable[Iterable[int]] | Int[Tensor, "B T"]


def generate(
    model: GPT | Reader,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    stop: Sequence[Sequence[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
    **moved: Any,
) -> list[list[int]]:
    """Return the new tokens after each prompt.

    Each row of the batch gets the tokens that it would get alone with its seed, however
    long the other rows are. When a row outgrows the model's context, its last half is
    read again from position 0; see ``fit``.

    Args:
        model: The model; or a reader for it, such as a ``Decoder`` or a reader of
            ``decoding.cache_readers``.
        prompts: Token ids of each prompt, at least one: lists, or a tensor.
        max_new_tokens: How many tokens to add to each, unless it stops earlier.
        sampling: How to choose tokens; ``Sampling()`` by default, which draws from the
            model's own probabilities.
        stop: Sequences of tokens that end an answer; they are not part of it.
        seed: Row r draws with the seed ``seed + r``. By default it is drawn from
            PyTorch's global generator.
        use_cache: Keep keys and values of earlier tokens. Without a cache each token
            takes a pass over the whole text; the answer is the same.
        moved: The settings of ``sampling`` one by one, which work for one more release.

    Raises:
        TypeError: If an argument has the wrong type, such as text for a prompt.
        ValueError: If a setting is out of its range, or a prompt is empty or contains
            something other than token ids of the model.
    """
    prompts = _listed(prompts)
    steps = stream(
        model,
        prompts,
        max_new_tokens=max_new_tokens,
        sampling=_with_moved(sampling, moved),
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
    stop: Sequence[Sequence[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
    **moved: Any,
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
    contexts = _checked(_listed(prompts), gpt.config.vocab_size)
    if not isinstance(max_new_tokens, int):
        raise TypeError(f"max_new_tokens={max_new_tokens!r} must be an int")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} must not be negative")
    sampling = _with_moved(sampling, moved)
    sampling = Sampling() if sampling is None else sampling
    if not isinstance(sampling, Sampling):
        kind = type(sampling).__name__
        raise TypeError(f"sampling must be a Sampling(...); it is a {kind}")
    stop = _checked_stop(stop)
    chooser = _Chooser(contexts, gpt, sampling, _checked_seed(seed))
    watches = [StopWatch(stop, ()) for _ in contexts]
    reader = _reader(model, use_cache)
    steps = _steps(reader, contexts, max_new_tokens, chooser)
    return _watched(steps, watches) if stop else steps


def _model_of(model: GPT | Reader) -> GPT:
    """Return the model behind a reader; raise a ``TypeError`` if there is none."""
    gpt = model if isinstance(model, GPT) else getattr(model, "model", None)
    if isinstance(gpt, GPT):
        return gpt
    came = repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
    named = f": write load_pretrained({came})" if isinstance(model, str) else ""
    raise TypeError(f"model must be a GPT or a reader for one; it is {came}{named}")


def _steps(
    reader: Reader,
    contexts: list[list[int]],
    max_new_tokens: int,
    chooser: "_Chooser",
) -> Iterator[list[tuple[int, ...]]]:
    """Yield, step by step, the next token of each row as a tuple of one."""
    contexts = [fit(context, reader.longest) for context in contexts]
    tokens: Tensor | None = None
    for _ in range(max_new_tokens):
        if tokens is None:
            logits = reader.read(contexts)
        elif max(map(len, contexts)) > reader.longest:
            contexts = [fit(context, reader.longest) for context in contexts]
            logits = reader.read(contexts)
        else:
            logits = reader.step(tokens)
        tokens = chooser.choose(logits)
        new: list[int] = tokens.tolist()
        for context, token in zip(contexts, new, strict=True):
            context.append(token)
        yield [(token,) for token in new]


def _watched(
    steps: Iterator[list[tuple[int, ...]]], watches: list[StopWatch[tuple[int, ...]]]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the tokens of each row up to its first stop sequence."""
    for new in steps:
        yield [watch.feed(token) for watch, token in zip(watches, new, strict=True)]
        if all(watch.stopped for watch in watches):
            return
    yield [watch.finish() for watch in watches]


class _Chooser:
    """Choose the next token of each row from its logits."""

    def __init__(
        self,
        contexts: list[list[int]],
        model: GPT,
        sampling: Sampling,
        seed: int | None,
    ) -> None:
        device = numbers_of(model).device
        self.sampling = sampling
        self.seen = torch.zeros(
            len(contexts), model.config.vocab_size, dtype=torch.bool, device=device
        )
        for row, context in zip(self.seen, contexts, strict=True):
            row[context] = True
        seed = int(torch.randint(2**62, ())) if seed is None else seed
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


def _reader(model: GPT | Reader, use_cache: bool) -> Reader:
    if not isinstance(model, GPT):
        return model if use_cache else _reader(model.model, use_cache)
    if not model.config.attention.reads_padding:
        kind = CachedReader if use_cache else WholeReader
        return EqualLengthsReader(lambda: kind(model))
    if not use_cache:
        return WholeReader(model)
    try:
        return Decoder(model)
    except PackingError:
        return CachedReader(model)


def _listed(prompts: Prompts) -> Prompts:
    """Return prompts that can be gone through more than once, unlike a generator."""
    if isinstance(prompts, (str, Tensor)):
        return prompts
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be a list of prompts; it is {prompts!r}")
    return [*prompts]


def _checked(prompts: Prompts, vocab_size: int) -> list[list[int]]:
    """Return the prompts as lists, after checking that they hold token ids."""
    if isinstance(prompts, Tensor):
        no_ids = prompts.is_floating_point() or prompts.dtype == torch.bool
        if prompts.ndim != 2 or no_ids:
            raise ValueError(
                f"prompts must be token ids of shape (B, T); they are "
                f"{prompts.dtype} of shape {tuple(prompts.shape)}"
            )
        prompts = prompts.tolist()
    checked: list[list[int]] = []
    for row, prompt in enumerate([prompts] if isinstance(prompts, str) else prompts):
        if isinstance(prompt, str):
            raise TypeError(
                f"prompts must be token ids; {prompt!r} is text: "
                "write [tokenizer.encode(text)]"
            )
        if isinstance(prompt, int):
            raise TypeError(
                f"prompts must be a list of prompts, each a list of token ids; "
                f"prompts[{row}] is {prompt}: for one prompt, write [prompt]"
            )
        ids = _ids(f"prompts[{row}]", prompt)
        if not ids:
            raise ValueError(f"prompts[{row}] is empty: it needs at least one token")
        for token in ids:
            if not 0 <= token < vocab_size:
                raise ValueError(
                    f"prompts[{row}] holds {token}; tokens must be at least 0 and "
                    f"less than vocab_size={vocab_size}"
                )
        checked.append(ids)
    if not checked:
        raise ValueError("prompts is empty: pass at least one prompt")
    return checked


def _checked_stop(stop: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return stop sequences as tuples, after checking that they hold token ids."""
    if not isinstance(stop, Iterable):
        raise TypeError(
            f"stop must be a list of sequences of token ids; it is {stop!r}: for no "
            "stop write stop=[]"
        )
    checked: list[tuple[int, ...]] = []
    for each in [stop] if isinstance(stop, str) else stop:
        if isinstance(each, str):
            raise TypeError(
                f"stop must be a list of sequences of token ids; {each!r} is text: "
                "write stop=[tokenizer.encode(text)]"
            )
        if isinstance(each, int):
            raise TypeError(
                f"stop must be a list of sequences of token ids; {each} is one id: "
                f"write stop=[[{each}]]"
            )
        checked.append((*_ids(f"stop[{len(checked)}]", each),))
    return checked


def _ids(name: str, tokens: Iterable[int]) -> list[int]:
    """Return token ids of any kind of integers as those of Python."""
    try:
        given = tokens.tolist() if isinstance(tokens, Tensor) else [*tokens]
        if bool in map(type, given):  # a mask, although Python counts True as 1
            raise TypeError
        return [index(token) for token in given]
    except TypeError:
        raise TypeError(
            f"{name} must be a list of token ids; it is {tokens!r}"
        ) from None


def _checked_seed(seed: int | None) -> int | None:
    """Return a seed as an integer of Python, which generators need."""
    try:
        return None if seed is None else index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r} must be an int") from None


def _with_moved(sampling: Sampling | None, moved: dict[str, Any]) -> Sampling | None:
    """Move settings that were arguments of their own before 0.2 into ``sampling``."""
    if not moved:
        return sampling
    unknown = moved.keys() - Sampling.__dataclass_fields__.keys()
    if "do_sample" in unknown:
        raise TypeError(
            "generate has no argument 'do_sample' and draws by default: for the most "
            "likely token write sampling=Sampling(temperature=0.0)"
        )
    if unknown:
        ours = WRITING_SETTINGS.get(min(unknown))
        advice = f": write {ours}=..." if ours else ""
        raise TypeError(f"generate has no argument {min(unknown)!r}{advice}")
    now = ", ".join(f"{name}=..." for name in moved)
    warnings.warn(f"{now} is now sampling=Sampling({now})", FutureWarning, stacklevel=3)
    return replace(sampling or Sampling(), **moved)
