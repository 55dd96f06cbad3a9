"""What a model reads before it says the next token, and what it forgets."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["fit", "pad_left"]


# --8<-- [start:fit]
def fit(tokens: Sequence[int], max_seq_len: int) -> list[int]:
    """Give what a model reads of a sequence: all of it, or the last half of a context.

    A sequence that has outgrown ``max_seq_len`` is read anew from its last
    ``max_seq_len / 2`` tokens, at positions that start from 0. The cache can then grow
    for as many tokens again. If one token were dropped at a time, the whole context
    would be read anew for each: those that stay have read the one that goes, and with
    absolute positions each would move.
    """
    if len(tokens) <= max_seq_len:
        return list(tokens)
    return list(tokens[-((max_seq_len + 1) // 2) :])


# --8<-- [end:fit]


# --8<-- [start:pad]
def pad_left(
    contexts: Sequence[Sequence[int]], *, device: torch.device | str | None = None
) -> tuple[
    Int[Tensor, "B T"], Int[Tensor, "B T"] | None, Bool[Tensor, "B 1 1 T"] | None
]:
    """Lay sequences of different lengths side by side, so that all end together.

    Returns:
        Tokens, filled up with token 0 on the left; the position of each in its own
        sequence; and a mask that keeps all from attending to the filling. If there is
        nothing to fill, positions and mask are ``None``.
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


# --8<-- [end:pad]
