"""Graders of *Why attention*."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["grade_pair_table", "grade_recent"]


def grade_pair_table(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Grade a table of the probabilities of pairs, counted from 1.

    Args:
        answer: A function of tokens (N,) and the size of the vocabulary.
    """
    table = answer(torch.tensor([0, 1, 0, 1, 0, 2]), 4)
    assert table.shape == (4, 4), f"the table must be (4, 4), not {tuple(table.shape)}"
    assert not table.isnan().any(), "a word that never comes divides by zero"
    rows = table.sum(dim=-1)
    assert torch.allclose(rows, torch.ones(4)), "each row must sum to 1"
    assert (table > 0).all(), "a pair that was not seen must stay possible"
    right = torch.tensor([[1, 3, 2, 1], [3, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    right = right / right.sum(dim=-1, keepdim=True)
    backwards = torch.tensor([[1, 3, 1, 1], [3, 1, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]])
    backwards = backwards / backwards.sum(dim=-1, keepdim=True)
    assert not torch.allclose(table, backwards), "a row is the word before, not after"
    assert torch.allclose(table, right), f"after 0, 1 has {table[0, 1]:.2f}, not 0.43"
    return "right"


def grade_recent(answer: Callable[[int, int], Tensor]) -> str:
    """Grade the weights that average each word with those just before it.

    Args:
        answer: A function of the number of words and how many to average.
    """
    weights = answer(5, 3)
    assert weights.shape == (5, 5), (
        f"the weights must be (5, 5), not {tuple(weights.shape)}"
    )
    assert not weights.isnan().any(), "a row of minus infinities gives nan"
    assert not weights.triu(1).any(), "a word reads a later one"
    assert (weights.diagonal() > 0).all(), "each word counts itself"
    seen = (weights > 0).sum(dim=-1).tolist()
    assert seen == [1, 2, 3, 3, 3], f"the words average {seen} words, not 1, 2, 3, 3, 3"
    rows = weights.sum(dim=-1)
    assert torch.allclose(rows, torch.ones(5)), "the first rows must sum to 1, too"
    assert torch.allclose(weights[-1, -3:], torch.tensor(1 / 3)), "equal weights"
    return "right"
