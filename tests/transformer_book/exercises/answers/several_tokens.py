"""Answers to the exercises of *Several tokens at a time*: right and wrong ones."""

from collections.abc import Callable, Sequence
from typing import Any

from transformer_book import grade_best_draft, grade_count_steps


def speed(acceptance: float, cost: float, k: int) -> float:
    return sum(acceptance**i for i in range(k + 1)) / (k * cost + 1)


def best_draft(acceptance: float, cost: float) -> int:
    return max(range(17), key=lambda k: speed(acceptance, cost, k))


def most_tokens(acceptance: float, cost: float) -> int:
    return 16


def always_drafting(acceptance: float, cost: float) -> int:
    return max(range(1, 17), key=lambda k: speed(acceptance, cost, k))


def without_the_extra_token(acceptance: float, cost: float) -> int:
    return max(
        range(17),
        key=lambda k: sum(acceptance**i for i in range(1, k + 1)) / (k * cost + 1),
    )


def too_many(acceptance: float, cost: float) -> int:
    return 17


def the_speed(acceptance: float, cost: float) -> Any:
    return speed(acceptance, cost, best_draft(acceptance, cost))


def count_steps(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    if static:
        batches = range(0, len(wanted), num_slots)
        return sum(max(wanted[at : at + num_slots]) for at in batches)
    free = [0] * num_slots
    for each in wanted:
        free[free.index(min(free))] += each
    return max(free)


def always(static: bool) -> Callable[[Sequence[int], int, bool], int]:
    return lambda wanted, num_slots, _: count_steps(wanted, num_slots, static)


def evenly(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    return -(-sum(wanted) // num_slots)


def sorted_first(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    return count_steps(sorted(wanted), num_slots, static)


def emptying(wanted: list[int], num_slots: int, static: bool) -> int:
    steps = count_steps(wanted, num_slots, static)
    wanted.clear()
    return steps


RIGHT = {grade_best_draft: best_draft, grade_count_steps: count_steps}
WRONG: dict[Any, dict[str, Any]] = {
    grade_best_draft: {
        "with a chance of 0.0 and a cost of 0.1, 16 drafted tokens": most_tokens,
        "with a chance of 0.0 and a cost of 0.1, 1 drafted tokens": always_drafting,
        "another number is better": without_the_extra_token,
        "not a number from 0 to 16": too_many,
        "not a whole number": the_speed,
    },
    grade_count_steps: {
        "2 slots, static: it says 21": always(False),
        "2 slots, continuous: it says": always(True),
        "2 slots, static: it says 17": evenly,
        "2 slots, static: it says 20": sorted_first,
        "it changes the list that it was given": emptying,
    },
}
