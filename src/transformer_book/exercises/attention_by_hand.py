"""Graders of *Attention by hand*."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tested_transformer.attention import (
    attention_scores,
    attention_weights,
    attention_with_weights,
)

__all__ = ["grade_query", "grade_safe_attend", "grade_scores_gradient"]

_KEYS = [[1.0, -1.0], [0.0, 1.0], [1.0, 0.0]]


def grade_safe_attend(answer: Callable[..., Sequence[float]]) -> str:
    """Grade attention for one query in plain Python, with scores of any size.

    Args:
        answer: A function of ``query``, ``keys`` and ``values``, which are lists.
    """
    values = [[1.0, 0.0], [4.0, 1.0], [2.0, 3.0]]
    for query in ([0.0, 1.0], [4000.0, 3999.0], [-8000.0, -4000.0]):
        q, k, v = (torch.tensor(x).double() for x in ([query], _KEYS, values))
        right, _ = attention_with_weights(q, k, v)
        unscaled, _ = attention_with_weights(q, k, v, scale=1.0)
        try:
            output = answer(query, _KEYS, values)
        except ArithmeticError as error:
            name = type(error).__name__
            raise AssertionError(f"{name} for the query {query}") from None
        assert len(output) == 2, "return only the output: two numbers"
        got = torch.tensor([list(output)]).double()
        if torch.allclose(got, unscaled) and not torch.allclose(right, unscaled):
            raise AssertionError("the scores are not divided by sqrt(d_k)")
        if torch.allclose(got, right, atol=1e-4):
            continue
        proportional = torch.allclose(got * right.sum(), right * got.sum())
        raise AssertionError(
            "the weights are not divided by their sum"
            if proportional
            else f"wrong for the query {query}: it gives {list(output)}"
        )
    return "right"


def grade_query(query: Sequence[float]) -> str:
    """Grade the query that gives the three keys weights of 1/4, 1/2 and 1/4."""
    q, k = torch.tensor([list(query)]).float(), torch.tensor(_KEYS)
    expected = torch.tensor([[0.25, 0.5, 0.25]])

    def gives(scores: Tensor) -> bool:
        return torch.allclose(attention_weights(scores), expected, atol=1e-4)

    if gives(attention_scores(q, k)):
        return "right"
    assert not gives(q @ k.mT), "right before the scores are divided by sqrt(2)"
    assert not gives(attention_scores(-q, k)), (
        "the sign is wrong: this query turns away from the second key"
    )
    weights = attention_weights(attention_scores(q, k))[0].tolist()
    raise AssertionError(f"the weights are {[round(w, 2) for w in weights]}")


def grade_scores_gradient(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Grade the gradient of scores, made from weights, values and a gradient.

    Args:
        answer: A function of ``weights``, ``values`` and ``grad_output``.
    """
    chance = torch.Generator().manual_seed(0)
    scores, values, grad_output = (
        torch.randn(shape, generator=chance, dtype=torch.float64)
        for shape in ((5, 7), (7, 3), (5, 3))
    )
    weights = scores.requires_grad_().softmax(dim=-1)
    output = weights @ values
    right, before = torch.autograd.grad(output, (scores, weights), grad_output)
    got = answer(weights.detach(), values, grad_output)
    assert got.shape == right.shape, (
        f"the shape is {tuple(got.shape)}, not {tuple(right.shape)}"
    )
    assert not torch.allclose(got, before), (
        "this is the gradient of the weights: softmax comes next"
    )
    rows = got.sum(dim=-1)
    assert torch.allclose(rows, torch.zeros_like(rows)), (
        "a row does not sum to 0, but raising all its scores changes nothing"
    )
    assert torch.allclose(got, right), "rows sum to 0, but the numbers are wrong"
    return "right"
