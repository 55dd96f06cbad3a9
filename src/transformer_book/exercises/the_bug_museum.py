"""Graders of *The bug museum*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.masks import causal_mask

__all__ = ["grade_leak", "grade_triangle"]


def grade_leak(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Grade weights that look causal and leak all the same.

    Args:
        answer: A function of ``scores`` and ``mask``, both (T, T); returns weights.
    """
    scores, mask = torch.randn(5, 5), causal_mask(5)
    weights = answer(scores.clone(), mask)
    assert weights.shape == (5, 5), f"the weights are {tuple(weights.shape)}"
    assert torch.allclose(weights.sum(dim=-1), torch.ones(5)), "rows do not sum to one"
    assert not weights[~mask].any(), "a forbidden key has a weight, and it shows"
    assert torch.equal(answer(scores.clone(), mask), weights), (
        "the same scores give other weights"
    )
    moved = 0.0
    for score in (-9.0, 0.0, 9.0):
        # Change what the first rows score for later keys, or what later rows score.
        for part in ((slice(3), slice(3, 5)), (slice(3, 5), slice(5))):
            changed = scores.clone()
            changed[part] = score
            gap = answer(changed, mask)[:3] - weights[:3]
            moved = max(moved, gap.abs().max().item())
    assert moved > 1e-4, "nothing leaks: the first rows have not moved"
    return "right"


def grade_triangle(answer: Callable[[int, int], Tensor]) -> str:
    """Grade a causal mask for any number of queries and of keys.

    Args:
        answer: A function of the two numbers; the last query is at the last key.
    """

    def ones(num_queries: int, num_keys: int) -> Tensor:
        return torch.ones(num_queries, num_keys, dtype=torch.bool)

    slips: dict[str, Callable[[int, int], Tensor]] = {
        "each token sees the next": lambda t, s: ones(t, s).tril(s - t + 1),
        "no token sees itself": lambda t, s: ones(t, s).tril(s - t - 1),
        "the first query stands at the first key": lambda t, s: ones(t, s).tril(),
        "it allows what it should forbid": lambda t, s: ~causal_mask(t, s),
        "the upper triangle is the future": lambda t, s: ones(t, s).triu(s - t),
        "everything is allowed": ones,
    }
    sizes = [(4, 4), (1, 7), (3, 5), (5, 3)]
    got = [answer(*size) for size in sizes]
    for size, mask in zip(sizes, got, strict=True):
        assert mask.shape == size, f"{tuple(mask.shape)} for {size}"
        assert mask.dtype == torch.bool, f"a mask is boolean, not {mask.dtype}"
    if all(torch.equal(a, causal_mask(*b)) for a, b in zip(got, sizes, strict=True)):
        return "right"
    for hint, slip in slips.items():
        if all(torch.equal(a, slip(*b)) for a, b in zip(got, sizes, strict=True)):
            raise AssertionError(hint)
    wrong = next(
        size
        for mask, size in zip(got, sizes, strict=True)
        if not torch.equal(mask, causal_mask(*size))
    )
    raise AssertionError(f"another mask than the causal one, for {wrong}")
