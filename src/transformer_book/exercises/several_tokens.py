"""Graders of *Several tokens at a time*."""

from collections.abc import Callable, Sequence

from tested_transformer.decoding import expected_tokens

__all__ = ["grade_best_draft", "grade_count_steps"]


def grade_best_draft(answer: Callable[[float, float], int]) -> str:
    """Grade how many tokens to draft, from 0 to 16, for the highest throughput.

    Args:
        answer: A function of the chance that a drafted token stays, and of what
            drafting one costs, in passes of the model.

    Raises:
        AssertionError: If it is wrong; the message says how.
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


def grade_count_steps(answer: Callable[[Sequence[int], int, bool], int]) -> str:
    """Grade how many steps a batch takes for requests that arrive at the same time.

    Args:
        answer: A function of how many tokens each request wants, the number of slots,
            and whether newcomers wait for the whole batch.

    Raises:
        AssertionError: If it is wrong; the message says how.
    """
    for wanted, num_slots in (
        ([5], 1),
        ([3, 4, 2], 1),
        ([9, 2, 5, 1, 13, 4], 2),
        ([7, 1, 1, 1, 7, 1, 1, 1, 7], 3),
        ([2, 6], 5),
    ):
        for static in (True, False):
            lengths = [*wanted]
            got = answer(lengths, num_slots, static)
            assert lengths == wanted, "it changes the list that it was given"
            right = _steps(wanted, num_slots, static)
            kind = "static" if static else "continuous"
            assert got == right, f"{wanted}, {num_slots} slots, {kind}: it says {got}"
    return "right"


def _steps(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    left, waiting, steps = list[int](), [*wanted], 0
    while left or waiting:
        if not (static and left):
            free = num_slots - len(left)
            left, waiting = left + waiting[:free], waiting[free:]
        left = [length - 1 for length in left if length > 1]
        steps += 1
    return steps
