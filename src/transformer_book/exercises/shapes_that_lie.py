"""Graders of *Shapes that lie*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.multihead import merge_heads, split_heads

__all__ = ["grade_accepts", "grade_sees_ahead"]


def grade_sees_ahead(answer: Callable[[int, int, int, int], bool]) -> str:
    """Grade a function that says where the wrong split puts a token ahead of its row.

    Args:
        answer: A function of the head, the row, and the numbers of tokens and heads.
    """
    for tokens, heads in ((5, 2), (4, 4), (7, 3)):
        names = torch.arange(tokens).view(1, tokens, 1).expand(1, tokens, 2 * heads)
        held = names.reshape(heads, tokens, 2)[..., 0]
        ahead = held > torch.arange(tokens)
        got = torch.tensor(
            [[answer(h, t, tokens, heads) for t in range(tokens)] for h in range(heads)]
        )
        assert got.any(), "no row is ahead: is that the right split?"
        assert not got[0].any(), "in head 0 no token can be ahead of its row"
        assert not got[1:].all(), (
            f"with {tokens} tokens and {heads} heads, not every row is ahead"
        )
        for h, t in (got != ahead).nonzero().tolist():
            raise AssertionError(
                f"with {tokens} tokens and {heads} heads, row {t} of head {h} is "
                f"{'ahead' if ahead[h, t] else 'not ahead'}"
            )
    return "right"


def grade_accepts(
    answer: Callable[[Callable[..., Tensor], Callable[..., Tensor]], bool],
) -> str:
    """Grade a test for a split and a merge.

    Args:
        answer: A function of a split and a merge that says whether they are right.
    """
    assert answer(split_heads, merge_heads), "it refuses the right pair"
    wrong = {
        "the split without transpose": (_wrong_split, merge_heads),
        "the merge without transpose": (split_heads, _wrong_merge),
        "both wrong, which is a round trip": (_wrong_split, _wrong_merge),
        "features dealt out like cards, also a round trip": (_deal, _collect),
        "sequences that trade places": (_roll, merge_heads),
    }
    for name, pair in wrong.items():
        assert not answer(*pair), f"it accepts {name}"
    return "right"


def _wrong_split(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _wrong_merge(heads: Tensor) -> Tensor:
    return heads.reshape(heads.shape[0], heads.shape[2], -1)


def _deal(x: Tensor, num_heads: int) -> Tensor:
    """Give feature f to head f mod H."""
    return x.unflatten(-1, (-1, num_heads)).movedim(-1, 1)


def _collect(heads: Tensor) -> Tensor:
    return heads.movedim(1, -1).flatten(2)


def _roll(x: Tensor, num_heads: int) -> Tensor:
    """Split rightly, but give each sequence the heads of another."""
    return split_heads(x, num_heads).roll(1, dims=0)
