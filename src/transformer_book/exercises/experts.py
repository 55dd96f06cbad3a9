"""Graders of *Experts*."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["grade_balance", "grade_route"]


def grade_route(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Grade the shares that a router gives to the experts of each token.

    Args:
        answer: A function of scores, (tokens, experts), and ``k``.
    """
    tenths = torch.tensor([[1.0, 6.0, 3.0], [2.0, 1.0, 7.0]])
    logits = tenths.log() + 1.0
    for k in (2, 1, 3):
        got = answer(logits, k)
        assert got.shape == (2, 3), f"{tuple(got.shape)}, not (2, 3)"
        used = (got > 0).sum(dim=-1).tolist()
        assert used == [k, k], f"for k={k} the tokens use {used} experts"
        probabilities = tenths / 10
        least = probabilities.topk(k, dim=-1).values[:, -1:]
        kept = torch.where(probabilities >= least, probabilities, 0.0)
        assert bool(((got > 0) == (kept > 0)).all()), "not the most probable experts"
        sums = got.sum(dim=-1)
        if k == 1:
            assert not torch.allclose(sums, torch.ones(2)), (
                "for k=1 every share is 1: the router would get no gradient"
            )
            expected = kept
        else:
            assert torch.allclose(sums, torch.ones(2)), (
                f"for k={k} the shares of the first token sum to {sums[0]:.2f}"
            )
            expected = kept / kept.sum(dim=-1, keepdim=True)
        assert torch.allclose(got, expected, atol=1e-5), (
            f"for k={k} shares are not in proportion to the probabilities"
        )
    return "right"


def grade_balance(answer: Callable[[Tensor, int], Any]) -> str:
    """Grade the balance loss of some probabilities.

    Args:
        answer: A function of probabilities, (tokens, experts), and ``k``.
    """
    probabilities = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.1, 0.3], [0.7, 0.2, 0.1]])
    expected = {1: 3 * (1 * 0.6), 2: 3 * (0.5 * 0.6 + (2 * 0.7 / 3 + 0.5 / 3) / 6)}
    for k, right in expected.items():
        got = float(answer(probabilities, k))
        mistakes = {
            right / 3: "times the number of experts: an even load should give 1",
            right * k: "f is a share of all choices, and there are k for each token",
            3 * 0.6**2 + 3 * 0.7**2 / 9 + 3 * 0.5**2 / 9: (
                "probabilities times probabilities: f counts choices"
            ),
        }
        for value, message in mistakes.items():
            assert abs(value - right) < 1e-6 or abs(got - value) > 1e-6, message
        assert abs(got - right) < 1e-6, f"{got:.4f} is wrong for k={k}"
    return "right"
