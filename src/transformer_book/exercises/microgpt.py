"""Graders of *A GPT in plain Python*."""

import math
from collections.abc import Callable

from transformer_book.microgpt import Scalar

__all__ = ["grade_saved", "grade_tanh"]


def grade_tanh(answer: Callable[[Scalar], Scalar]) -> str:
    """Grade a hyperbolic tangent with its gradient.

    Args:
        answer: A function that takes and returns a ``Scalar``.
    """
    x = Scalar(0.5)
    y = answer(x)
    assert isinstance(y, Scalar), f"a {type(y).__name__} knows no gradient: a Scalar"
    assert math.isclose(y.value, math.tanh(0.5)), "the value is wrong"
    (y * 3).backward()
    assert x.grad, "the gradient is lost: which number was it made from?"
    assert not math.isclose(x.grad, 3 * (1 - 0.5**2)), "the slope is that of another y"
    assert math.isclose(x.grad, 3 * (1 - math.tanh(0.5) ** 2)), "the slope is wrong"
    return "right"


def grade_saved(answer: Callable[[int, int, int], int]) -> str:
    """Grade how many multiplications by weights the cache saves.

    Args:
        answer: A function of the width, the vocabulary and the tokens read.
    """
    for width, vocab, tokens in ((16, 26, 5), (6, 11, 7), (16, 26, 1)):
        blocks = 12 * width**2
        parameters = blocks + width * vocab
        again = parameters * tokens * (tokens + 1) // 2
        got, saved = answer(width, vocab, tokens), again - parameters * tokens
        assert got == saved or got != again, (
            "that is the cost of reading again: what is saved?"
        )
        assert got == saved or got != parameters * (tokens - 1), (
            "each prefix is as long as itself: add them all up"
        )
        assert got == saved or got != blocks * (tokens * (tokens - 1) // 2), (
            "one matrix is missing, which is used for each token, too"
        )
        assert got == saved, f"wrong for D={width}, V={vocab}, S={tokens}: {got:,}"
    return "right"
