"""Generation: from prompts to the tokens that come after them, one at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.generation.contexts import fit
from tested_transformer.generation.fast.decoder import Decoder
from tested_transformer.generation.fast.packing import PackingError
from tested_transformer.generation.readers import CachedReader, Reader, WholeReader
from tested_transformer.generation.sampling import (
    check_sampling,
    draw,
    penalize_repetition,
    sampling_probabilities,
)
from tested_transformer.generation.stopping import StopWatch
from tested_transformer.gpt import GPT

__all__ = ["generate", "stream"]


# --8<-- [start:generate]
def generate(
    model: GPT | Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[Sequence[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Go on from each prompt, and give the new tokens of each.

    Each row of the batch gets what it would get alone, from its own seed, whatever the
    lengths of the others. A row that outgrows the model's context is read anew from its
    last half, as ``fit`` says.

    Args:
        model: The model, or a ``Decoder`` of it, which need not be made again then.
        prompts: Token ids of each prompt, at least one.
        max_new_tokens: How many tokens to add to each, unless it stops before.
        temperature: 0 always takes the likeliest token.
        top_k: Draw from this many of the likeliest tokens only.
        top_p: Draw from the fewest tokens that have this probability together.
        min_p: Draw from tokens at least this share as likely as the likeliest.
        repetition_penalty: More than 1 makes tokens that have been there less likely.
        stop: Sequences of tokens that end an answer; they are not part of it.
        seed: Row r draws with the seed ``seed + r``. By default PyTorch's own random
            numbers choose it.
        use_cache: Keep what was computed for earlier tokens. Without, each token costs
            a whole pass; the answer is the same.

    Raises:
        ValueError: If a setting is out of its range, or a prompt is empty or holds what
            is not a token.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    for released in stream(
        model,
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        stop=stop,
        seed=seed,
        use_cache=use_cache,
    ):
        for answer, tokens in zip(answers, released, strict=True):
            answer += tokens
    return answers


# --8<-- [end:generate]


def stream(
    model: GPT | Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[Sequence[int]] = (),
    seed: int | None = None,
    use_cache: bool = True,
) -> Iterator[list[tuple[int, ...]]]:
    """Do what ``generate`` does, and give the tokens of each row as they come.

    Each step gives one tuple for each prompt: mostly of one token, of none while the
    last ones may be the beginning of a stop sequence, and after the end.

    Args:
        model: As for ``generate``, and so are all others.
        prompts: Token ids of each prompt.
        max_new_tokens: How many tokens to add to each.
        temperature: 0 always takes the likeliest token.
        top_k: Draw from this many of the likeliest tokens only.
        top_p: Draw from the fewest tokens that have this probability together.
        min_p: Draw from tokens at least this share as likely as the likeliest.
        repetition_penalty: More than 1 makes tokens that have been there less likely.
        stop: Sequences of tokens that end an answer.
        seed: Row r draws with the seed ``seed + r``.
        use_cache: Keep what was computed for earlier tokens.

    Raises:
        ValueError: As ``generate``, and at once, before the first token.
    """
    # Not a generator itself, so that a mistake is found here and not in a loop later.
    gpt = model.model if isinstance(model, Decoder) else model
    _check_request(prompts, max_new_tokens, gpt.config.vocab_size)
    filters: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
    }
    check_sampling(**filters, repetition_penalty=repetition_penalty)
    chooser = _Chooser(prompts, gpt, filters, repetition_penalty, seed)
    watches = [StopWatch([tuple(each) for each in stop], ()) for _ in prompts]
    reader = _reader(model, use_cache)
    longest = gpt.config.max_seq_len
    return _steps(reader, prompts, max_new_tokens, chooser, watches, longest)


# --8<-- [start:steps]
def _steps(
    reader: Reader,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    chooser: "_Chooser",
    watches: list[StopWatch[tuple[int, ...]]],
    max_seq_len: int,
) -> Iterator[list[tuple[int, ...]]]:
    contexts = [fit(prompt, max_seq_len) for prompt in prompts]
    tokens: Tensor | None = None
    for _ in range(max_new_tokens):
        if tokens is None:
            logits = reader.read(contexts)
        elif max(map(len, contexts)) > max_seq_len:
            contexts = [fit(context, max_seq_len) for context in contexts]
            logits = reader.read(contexts)
        else:
            logits = reader.step(tokens)
        tokens = chooser.choose(logits)
        new: list[int] = tokens.tolist()
        for context, token in zip(contexts, new, strict=True):
            context.append(token)
        yield [watch.feed((token,)) for watch, token in zip(watches, new, strict=True)]
        if all(watch.stopped for watch in watches):
            return
    yield [watch.finish() for watch in watches]


# --8<-- [end:steps]


class _Chooser:
    """Choose the next token of each row from its logits."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        model: GPT,
        filters: dict[str, Any],
        repetition_penalty: float,
        seed: int | None,
    ) -> None:
        device = model.head_weight.device
        self.filters = filters
        self.penalty = repetition_penalty
        self.seen = torch.zeros(
            len(prompts), model.config.vocab_size, dtype=torch.bool, device=device
        )
        for row, prompt in zip(self.seen, prompts, strict=True):
            row[list(prompt)] = True
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        self.generators = [
            torch.Generator(device).manual_seed(seed + row)
            for row in range(len(prompts))
        ]

    @torch.inference_mode()
    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """Choose one token for each row."""
        if self.penalty != 1.0:
            logits = penalize_repetition(logits, self.seen, self.penalty)
        if self.filters["temperature"] == 0.0:
            tokens = logits.argmax(dim=-1)
        else:
            tokens = draw(
                sampling_probabilities(logits, **self.filters), self.generators
            )
        if self.penalty != 1.0:
            self.seen.scatter_(1, tokens[:, None], True)
        return tokens


def _reader(model: GPT | Decoder, use_cache: bool) -> Reader:
    if not use_cache:
        return WholeReader(model.model if isinstance(model, Decoder) else model)
    if isinstance(model, Decoder):
        return model
    try:
        return Decoder(model)
    except PackingError:
        return CachedReader(model)


def _check_request(
    prompts: Sequence[Sequence[int]], max_new_tokens: int, vocab_size: int
) -> None:
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} must not be negative")
    if not prompts:
        raise ValueError("prompts is empty: give at least one prompt")
    for row, prompt in enumerate(prompts):
        if not len(prompt):
            raise ValueError(f"prompts[{row}] is empty: give it at least one token")
        for token in prompt:
            if not 0 <= token < vocab_size:
                raise ValueError(
                    f"prompts[{row}] holds {token}; tokens must be at least 0 and "
                    f"less than vocab_size={vocab_size}"
                )
