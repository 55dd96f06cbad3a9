"""Graders of *Fast paths*."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from tested_transformer.attention import attention_scores, attention_with_weights

__all__ = ["grade_fast", "grade_merge"]


def _half(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    sums = attention_scores(q, k).logsumexp(dim=-1, keepdim=True)
    return attention_with_weights(q, k, v)[0], sums


def grade_merge(answer: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> str:
    """Grade a function that merges the outputs over two parts of the keys.

    Args:
        answer: A function of the output and the logarithms of the one part, and of
            those of the other.
    """
    generator = torch.Generator().manual_seed(0)
    for size, complaint in (
        (0.0, "with equal scores, a part counts by its number of keys"),
        (3.0, "a part with higher scores should count for more"),
        (300.0, "with large scores an exponential overflows"),
    ):
        q, k, v = torch.randn(3, 2, 9, 4, generator=generator)
        k = size * k
        expected, _ = attention_with_weights(q, k, v)
        first, second = _half(q, k[:, :3], v[:, :3]), _half(q, k[:, 3:], v[:, 3:])
        got = answer(*first, *second)
        assert got.shape == expected.shape, f"{tuple(got.shape)} is not (2, 9, 4)"
        assert torch.allclose(got, expected, atol=1e-4), complaint
    return "right"


def grade_fast(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Grade attention of one head without a batch that must run by the flash kernel.

    Args:
        answer: A function of queries, keys and wider values.
    """
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 10, 8, generator=generator)
    v = torch.randn(10, 12, generator=generator)
    expected, _ = attention_with_weights(q, k, v)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        got = answer(q, k, v)
    assert got.shape == (10, 12), f"{tuple(got.shape)} is not (10, 12)"
    gap = (got - expected).abs().max().item()
    assert gap < 1e-5, f"another output, by up to {gap:.2f}: is the scale the same?"
    names = [event.key for event in record.key_averages()]
    assert any("flash" in name for name in names), "right, but by the plain kernel"
    return "right"
