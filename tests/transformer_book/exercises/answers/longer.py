"""Answers to the exercises of *Longer*: right ones, and wrong ones."""

from typing import Any

from transformer_book import grade_slot, grade_slower_base


def slower_base(base: float, factor: float, head_dim: int) -> float:
    return base * factor ** (head_dim / (head_dim - 2))


def the_old_one(base: float, factor: float, head_dim: int) -> float:
    return base


def times_the_factor(base: float, factor: float, head_dim: int) -> float:
    return base * factor


def by_all_pairs(base: float, factor: float, head_dim: int) -> float:
    return base * factor ** (head_dim / (head_dim - 1))


def slot(token: int, sinks: int, window: int) -> int:
    return token if token < sinks else sinks + (token - sinks) % window


def a_plain_ring(token: int, sinks: int, window: int) -> int:
    return token % (sinks + window)


def back_and_forth(token: int, sinks: int, window: int) -> int:
    at = (token - sinks) % (2 * window)
    return token if token < sinks else sinks + min(at, 2 * window - 1 - at)


def without_an_end(token: int, sinks: int, window: int) -> int:
    return token


def the_last_slot(token: int, sinks: int, window: int) -> int:
    return min(token, sinks + window - 1)


def all_over_the_window(token: int, sinks: int, window: int) -> int:
    return token if token < sinks else sinks + (token - sinks) % max(window - 1, 1)


RIGHT = {grade_slower_base: slower_base, grade_slot: slot}
WRONG: dict[Any, dict[str, Any]] = {
    grade_slower_base: {
        "that is the old base": the_old_one,
        "2.24 times as slowly, not 5 times": times_the_factor,
        "2.92 times as slowly, not 5 times": by_all_pairs,
    },
    grade_slot: {
        "it takes the place of sink 0": a_plain_ring,
        "it takes the place of token 4": back_and_forth,
        "there is no slot 5": without_an_end,
        "the oldest that is no sink is": the_last_slot,
        "and others are free": all_over_the_window,
    },
}
