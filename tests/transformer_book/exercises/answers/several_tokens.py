"""Answers to the exercises of *Several tokens at a time*: right and wrong ones."""

from typing import Any

from transformer_book import grade_best_draft


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


RIGHT = {grade_best_draft: best_draft}
WRONG: dict[Any, dict[str, Any]] = {
    grade_best_draft: {
        "with a chance of 0.0 and a cost of 0.1, 16 drafted tokens": most_tokens,
        "with a chance of 0.0 and a cost of 0.1, 1 drafted tokens": always_drafting,
        "another number is better": without_the_extra_token,
        "not a number from 0 to 16": too_many,
        "not a whole number": the_speed,
    },
}
