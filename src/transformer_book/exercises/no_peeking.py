"""Graders of *No peeking*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.attention import attention_with_weights
from tested_transformer.masks import causal_mask

__all__ = ["grade_in_pieces", "grade_packed_mask"]


def grade_packed_mask(answer: Callable[[Tensor], Tensor]) -> str:
    """Grade a causal mask for several documents in one sequence.

    Args:
        answer: A function of the number of the document that each token belongs to.
    """
    documents = torch.tensor([4, 4, 4, 1, 1])
    got = answer(documents)
    expected = torch.zeros(5, 5, dtype=torch.bool)
    expected[:3, :3], expected[3:, 3:] = causal_mask(3), causal_mask(2)
    assert got.dtype == torch.bool, "a mask is boolean"
    assert got.shape == (5, 5), f"the mask is {tuple(got.shape)}, not (5, 5)"
    assert not torch.equal(got, ~expected), "turned around: True = may attend"
    assert not got[:3, 3:].any(), "the first document reads the second"
    assert not got[3:, :3].any(), "the second document reads the first"
    assert not (got & ~causal_mask(5)).any(), "a token reads its own future"
    assert torch.equal(got, expected), "something allowed is missing"
    return "right"


def grade_in_pieces(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> str:
    """Grade causal attention that reads its queries a piece at a time.

    Args:
        answer: A function of queries, keys, values and the size of a piece.
    """
    q, k, v = torch.randn(3, 1, 2, 7, 4, dtype=torch.double)
    expected, _ = attention_with_weights(q, k, v, causal=True)
    for size in (7, 3, 1):
        got = answer(q, k, v, size)
        assert got.shape == expected.shape, f"{tuple(got.shape)} for size {size}"
        close = torch.isclose(got, expected, atol=1e-6).all(dim=-1).all(dim=(0, 1))
        assert close[:size].all(), (
            f"the first piece of {size} is wrong: does a query see those behind it?"
        )
        pieces = zip(*(x.split(size, dim=-2) for x in (q, k, v)), strict=True)
        alone = [attention_with_weights(*x, causal=True)[0] for x in pieces]
        assert size == 7 or not torch.allclose(got, torch.cat(alone, dim=-2)), (
            "each piece sees its own keys alone, and none that were read before"
        )
        assert close.all(), (
            f"right in the first piece of {size}, wrong later: "
            "which keys does the first query of the second piece see?"
        )
    return "right"
