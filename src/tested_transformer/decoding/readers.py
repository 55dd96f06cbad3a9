"""Readers: several ways for a model to read the text before the next token.

``WholeReader``, the reference, reads the whole sequence again for each token.
``CachedReader`` keeps keys and values. ``fast.Decoder`` is the fast one. Both are
tested against the reference. ``EqualLengthsReader`` wraps a reader for attention that
cannot mask padding.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tested_transformer.cache import KVCache
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import evaluating

__all__ = [
    "CachedReader",
    "EqualLengthsReader",
    "Reader",
    "WholeReader",
    "fit",
    "last_logits",
    "pad_left",
    "reader_for",
]


@runtime_checkable
class Reader(Protocol):
    """A way to read texts token by token; what ``generate`` asks for logits.

    Attributes:
        model: The model that reads.
        longest: How many tokens it reads before the first half must be dropped.
    """

    model: GPT
    longest: int

    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        ...

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        ...


def reader_for(model: GPT, *, use_cache: bool = True) -> Reader:
    """Return the reader that ``generate`` uses for a model by default.

    Args:
        model: The model.
        use_cache: Keep keys and values, instead of reading all tokens in each step.
    """
    kind = CachedReader if use_cache else WholeReader
    if not model.config.attention.reads_padding:
        return EqualLengthsReader(lambda: kind(model))
    return kind(model)


# --8<-- [start:fit]
def fit(tokens: Sequence[int], max_seq_len: int) -> list[int]:
    """Return the part of a sequence that a model reads: all, or the last half context.

    If a sequence has outgrown ``max_seq_len``, the model reads its last
    ``max_seq_len / 2`` tokens again, with positions that start from 0. The cache then
    has room for as many new tokens. Dropping only the oldest token would shift the
    positions of all others, so with learned or sinusoidal positions the whole context
    would have to be read again for each new token. With rotary positions or ALiBi, a
    model could keep the other keys, but above the first layer these depend on the
    dropped token.
    """
    if len(tokens) <= max_seq_len:
        return list(tokens)
    return list(tokens[-((max_seq_len + 1) // 2) :])


# --8<-- [end:fit]


def pad_left(
    contexts: Sequence[Sequence[int]], *, device: torch.device | str | None = None
) -> tuple[
    Int[Tensor, "B T"], Int[Tensor, "B T"] | None, Bool[Tensor, "B 1 1 T"] | None
]:
    """Pad sequences of different lengths on the left, so that all end together.

    Returns:
        Tokens, padded with token 0; the position of each in its own sequence; and a
        mask that hides the padding. Without padding, positions and mask are ``None``.
    """
    longest = max(len(context) for context in contexts)
    padding = [longest - len(context) for context in contexts]
    tokens = [[0] * p + [*c] for p, c in zip(padding, contexts, strict=True)]
    if not any(padding):
        return torch.tensor(tokens, device=device), None, None
    slots = torch.arange(longest, device=device)
    positions = slots - torch.tensor(padding, device=device)[:, None]
    mask = (positions >= 0)[:, None, None]
    return torch.tensor(tokens, device=device), positions.clamp(min=0), mask


@torch.inference_mode()
def last_logits(
    model: GPT,
    tokens: Int[Tensor, "B T"],
    *,
    positions: Int[Tensor, "B T"] | None = None,
    mask: Bool[Tensor, "B 1 1 S"] | None = None,
    cache: KVCache | None = None,
) -> Float[Tensor, "B V"]:
    """Run a model without dropout, and return the logits of the last position."""
    with evaluating(model):
        logits = model(
            tokens, positions=positions, mask=mask, cache=cache, last_only=True
        )
    return logits[:, -1]


class WholeReader:
    """Read the whole sequence again for each token."""

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.longest = model.config.max_seq_len
        self.contexts: list[list[int]] = []

    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        self.contexts = [list(context) for context in contexts]
        device = numbers_of(self.model).device
        tokens, positions, mask = pad_left(contexts, device=device)
        return last_logits(self.model, tokens, positions=positions, mask=mask)

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        pairs = zip(self.contexts, tokens.tolist(), strict=True)
        return self.read([[*context, token] for context, token in pairs])


# --8<-- [start:cached]
class CachedReader:
    """Keep the keys and values of earlier tokens, and read only the new token.

    Args:
        model: The model.
        new_cache: A function from the batch size to a cache; by default the model's
            ``new_cache``.
    """

    def __init__(
        self, model: GPT, *, new_cache: Callable[[int], KVCache] | None = None
    ) -> None:
        self.model = model
        self.new_cache = model.new_cache if new_cache is None else new_cache
        self.longest = model.config.max_seq_len

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        device = numbers_of(self.model).device
        tokens, self.positions, self.mask = pad_left(contexts, device=device)
        self.cache = self.new_cache(len(tokens))
        return self._last_logits(tokens)

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        if self.positions is not None and self.mask is not None:
            self.positions = self.positions[:, -1:] + 1
            self.mask = torch.nn.functional.pad(self.mask, (0, 1), value=True)
        return self._last_logits(tokens[:, None])

    def _last_logits(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        return last_logits(
            self.model,
            tokens,
            positions=self.positions,
            mask=self.mask,
            cache=self.cache,
        )


# --8<-- [end:cached]


class EqualLengthsReader:
    """Read sequences of different lengths separately, so that there is no padding.

    Args:
        make: A function that returns a new reader.
    """

    def __init__(self, make: Callable[[], Reader]) -> None:
        first = make()
        self.make, self.model, self.longest = make, first.model, first.longest

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        lengths = [len(context) for context in contexts]
        groups = [
            [row for row, own in enumerate(lengths) if own == length]
            for length in sorted({*lengths})
        ]
        self.groups = [(self.make(), torch.tensor(rows)) for rows in groups]
        logits = [
            reader.read([contexts[row] for row in rows])
            for (reader, _), rows in zip(self.groups, groups, strict=True)
        ]
        return self._in_order(logits)

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        return self._in_order([reader.step(tokens[at]) for reader, at in self.groups])

    def _in_order(self, logits: list[Tensor]) -> Tensor:
        order = torch.cat([rows for _, rows in self.groups]).argsort()
        return torch.cat(logits)[order]
