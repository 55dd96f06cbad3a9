"""Graders of *Several tokens at a time*."""

from collections.abc import Callable

from tested_transformer.decoding import expected_tokens

__all__ = ["grade_best_draft"]


def grade_best_draft(answer: Callable[[float, float], int]) -> str:
    """Grade how many tokens to draft, from 0 to 16, for the highest throughput.

    Args:
        answer: A function of the chance that a drafted token stays, and of what
            drafting one costs, in passes of the model.
    """
    for acceptance, cost in (
        *((0.8, 0.0), (0.0, 0.1), (0.9, 1.0), (0.8, 0.1)),
        *((0.5, 0.05), (0.95, 0.02), (0.6, 0.3), (0.3, 0.5)),
    ):
        got = answer(acceptance, cost)
        assert isinstance(got, int), f"it returns {got!r}, not a whole number"
        assert 0 <= got <= 16, f"it returns {got}, not a number from 0 to 16"
        speeds = [expected_tokens(acceptance, k) / (k * cost + 1) for k in range(17)]
        best = max(speeds)
        assert speeds[got] > best - 1e-9, (
            f"with a chance of {acceptance} and a cost of {cost}, {got} drafted tokens "
            f"are {speeds[got]:.2f} times as fast as none; another number is better"
        )
    return "right"
