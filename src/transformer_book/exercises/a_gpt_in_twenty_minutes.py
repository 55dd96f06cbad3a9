"""Graders of *A GPT in twenty minutes*."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["grade_go_on", "grade_reader"]


def grade_go_on(answer: Callable[..., Sequence[int]]) -> str:
    """Grade a loop that appends the likeliest next token.

    Args:
        answer: A function of a model, a list of tokens and a number.
    """
    read: list[list[int]] = []

    def sums(tokens: Tensor) -> Tensor:
        """Take the sum of all tokens so far, modulo 11, for the next one."""
        assert tokens.ndim == 2, f"the model takes (1, T), not {tuple(tokens.shape)}"
        read.append(tokens[0].tolist())
        return torch.nn.functional.one_hot(tokens.cumsum(-1) % 11, 11).float()

    start = [3, 5]
    got = [*answer(sums, start, 4)]
    expected = [3, 5, 8, 5, 10, 9]
    assert start == [3, 5], "it changes the list that it was given"
    assert got != expected[2:], "return the beginning, too"
    assert len(got) == 6, f"2 tokens and 4 more are 6, not {len(got)}"
    assert all(isinstance(token, int) for token in got), "the tokens must be integers"
    assert read[-1] != start, "each new token must be read before the next is chosen"
    assert len(read[-1]) > 1, "the model must read all tokens so far"
    assert got == expected, "the next token is the likeliest at the last position"
    return "right"


def grade_reader(answer: Callable[..., tuple[int, int]]) -> str:
    """Grade a search for the head that gives a key the most weight.

    Args:
        answer: A function of the weights of each layer, a query and a key.
    """
    weights = [torch.zeros(1, 3, 5, 5) for _ in range(2)]
    weights[1][0, 2, 4, 1] = 0.9
    weights[0][0, 1, 4, 1] = 0.5
    weights[0][0, 0, 1, 4] = 1.0
    weights[1][0, 0, 4, 3] = 1.0
    layer, head = answer(weights, 4, 1)
    assert (layer, head) != (0, 0), "a row is a query, a column a key"
    assert (layer, head) != (2, 1), "the layer comes first, then the head"
    assert (layer, head) != (1, 0), "that head looks at another key"
    assert (layer, head) != (0, 1), "look in every layer for the largest weight"
    assert (layer, head) == (1, 2), f"head {layer}.{head} gives that key no weight"
    return "right"
