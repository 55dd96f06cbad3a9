"""Answers to the exercises of *Watch it think*: a right one, and wrong ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_grown, grade_influence

Chance = Callable[[list[str]], float]


def grown(rows: list[Tensor]) -> Tensor:
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for t, row in enumerate(rows):
        maps[:, t, : t + 1] = row
    return maps


def as_columns(rows: list[Tensor]) -> Tensor:
    return grown(rows).mT


def from_the_right(rows: list[Tensor]) -> Tensor:
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for t, row in enumerate(rows):
        maps[:, t, len(rows) - t - 1 :] = row
    return maps


def overwritten(rows: list[Tensor]) -> Tensor:
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for row in rows:
        maps[:, -1, : row.shape[1]] = row
    return maps


def one_head(rows: list[Tensor]) -> Tensor:
    return grown(rows)[:1]


def other_head(rows: list[Tensor]) -> Tensor:
    return grown(rows).flip(0)


def influence(chance: Chance, words: list[str], other: str) -> list[float]:
    whole = chance(words)
    return [
        whole - chance([*words[:at], other, *words[at + 1 :]])
        for at in range(len(words))
    ]


def deleted(chance: Chance, words: list[str], other: str) -> list[float]:
    whole = chance(words)
    return [whole - chance(words[:at] + words[at + 1 :]) for at in range(len(words))]


def one_after_another(chance: Chance, words: list[str], other: str) -> list[float]:
    whole = chance(words)
    return [
        whole - chance([other] * (at + 1) + words[at + 1 :]) for at in range(len(words))
    ]


def rises(chance: Chance, words: list[str], other: str) -> list[float]:
    return [-fall for fall in influence(chance, words, other)]


def without_signs(chance: Chance, words: list[str], other: str) -> list[float]:
    return [abs(fall) for fall in influence(chance, words, other)]


def what_is_left(chance: Chance, words: list[str], other: str) -> list[float]:
    return [chance(words) - fall for fall in influence(chance, words, other)]


def without_the_last(chance: Chance, words: list[str], other: str) -> list[float]:
    return influence(chance, words, other)[:-1]


def every_place(chance: Chance, words: list[str], other: str) -> list[float]:
    return sorted(influence(chance, words, other), reverse=True)


RIGHT = {grade_grown: grown, grade_influence: influence}
WRONG: dict[Any, dict[str, Any]] = {
    grade_grown: {
        "a row is a query": as_columns,
        "in the future": from_the_right,
        "does not add up to 1": overwritten,
        "the maps are (1, 5, 5), not (2, 5, 5)": one_head,
        "in another order": other_head,
    },
    grade_influence: {
        "replace the word": deleted,
        "put each word back": one_after_another,
        "the sign": rises,
        "keep the sign": without_signs,
        "what is left of the chance": what_is_left,
        "3 numbers for 4 words": without_the_last,
        "it is [8.0, 2.0, 1.0, -2.0]": every_place,
    },
}
