"""Answers to the exercises of *Watch it think*: a right one, and wrong ones."""

from functools import partial

import torch

from transformer_book import grade_grown, grade_influence


def grown(rows, *, place=lambda t, length: (t, slice(t + 1))):
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for t, row in enumerate(rows):
        query, keys = place(t, len(rows))
        maps[:, query, keys] = row
    return maps


def from_the_right(t, length):
    return t, slice(length - t - 1, None)


def influence(chance, words, other, *, before=None, instead=None):
    instead = [other] if instead is None else instead
    falls = []
    for at in range(len(words)):
        beginning = words[:at] if before is None else [before] * at
        falls.append(chance(words) - chance([*beginning, *instead, *words[at + 1 :]]))
    return falls


RIGHT = {grade_grown: grown, grade_influence: influence}
WRONG = {
    grade_grown: {
        "a row is a query": lambda rows: grown(rows).mT,
        "in the future": partial(grown, place=from_the_right),
        "does not add up to 1": partial(
            grown, place=lambda t, length: (-1, slice(t + 1))
        ),
        "the maps are (1, 5, 5), not (2, 5, 5)": lambda rows: grown(rows)[:1],
        "in another order": lambda rows: grown(rows).flip(0),
    },
    grade_influence: {
        "replace the word": partial(influence, instead=[]),
        "put each word back": partial(influence, before="cat"),
        "the sign": lambda *args: [-fall for fall in influence(*args)],
        "keep the sign": lambda *args: [abs(fall) for fall in influence(*args)],
        "what is left of the chance": lambda chance, words, other: [
            chance(words) - fall for fall in influence(chance, words, other)
        ],
        "3 numbers for 4 words": lambda *args: influence(*args)[:-1],
        "it is [8.0, 2.0, 1.0, -2.0]": lambda *args: sorted(
            influence(*args), reverse=True
        ),
    },
}
