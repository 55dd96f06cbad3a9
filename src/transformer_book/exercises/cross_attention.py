"""Graders of *Cross-attention*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_cross_attend", "grade_joined_mask"]


def grade_cross_attend(answer: Callable[..., Tensor]) -> str:
    """Grade one head of cross-attention, without a batch.

    Args:
        answer: A function of ``x``, ``context``, ``w_q``, ``w_k`` and ``w_v``.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (4, 6), "context": (3, 5), "w_q": (6, 2), "w_k": (5, 2)}
    arguments = {
        name: torch.randn(shape, generator=generator)
        for name, shape in (shapes | {"w_v": (5, 7)}).items()
    }
    x, context, w_q, w_k, w_v = arguments.values()
    got = answer(*arguments.values())
    assert got.shape == (4, 7), (
        f"{tuple(got.shape)} is not (4, 7): one row for each query, as wide as a value"
    )
    raw, v = (x @ w_q) @ (context @ w_k).T, context @ w_v
    mistakes = {
        "the scores are not divided by sqrt(d_k)": raw.softmax(dim=-1) @ v,
        "the softmax runs over the queries": (raw / 2**0.5).softmax(dim=0) @ v,
        "the scores are divided by d_k itself": (raw / 2).softmax(dim=-1) @ v,
    }
    for message, wrong in mistakes.items():
        assert not torch.allclose(got, wrong, atol=1e-5), message
    expected = (raw / 2**0.5).softmax(dim=-1) @ v
    assert torch.allclose(got, expected, atol=1e-5), "not the average of the values"
    return "right"


def grade_joined_mask(answer: Callable[[int, int], Tensor]) -> str:
    """Grade a mask that makes cross-attention out of self-attention.

    Args:
        answer: A function of the two lengths.
    """
    generator = torch.Generator().manual_seed(0)
    length, num_keys = 5, 3
    mask = answer(length, num_keys)
    assert mask.dtype == torch.bool, f"a mask is boolean, not {mask.dtype}"
    both = length + num_keys
    assert mask.shape == (both, both), f"{tuple(mask.shape)} is not {(both, both)}"
    assert mask.any(dim=-1).all(), "a row is empty: its query may attend to nothing"
    read = mask[:length, :length].any(dim=-1).tolist()
    assert not any(read), f"rows of x that may attend to x: {sum(read)} of {length}"
    missing = int((~mask[:length, length:]).sum())
    assert not missing, f"pairs of x and context that are forbidden: {missing}"
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    x = torch.randn(2, length, 8, generator=generator)
    context = torch.randn(2, num_keys, 8, generator=generator)
    joined = layer(torch.cat([x, context], dim=1), mask=mask)[:, :length]
    assert torch.allclose(joined, layer(x, context=context), atol=1e-5)
    return "right"
