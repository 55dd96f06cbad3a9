"""Answers to the exercises of *Watch it think*: a right one, and wrong ones."""

import torch

from transformer_book import grade_grown, grade_influence


def grown(rows):
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for t, row in enumerate(rows):
        maps[:, t, : t + 1] = row
    return maps


def from_the_right(rows):
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for t, row in enumerate(rows):
        maps[:, t, len(rows) - t - 1 :] = row
    return maps


def overwritten(rows):
    maps = torch.zeros(len(rows[0]), len(rows), len(rows))
    for row in rows:
        maps[:, -1, : row.shape[1]] = row
    return maps


def influence(chance, words, other):
    whole = chance(words)
    return [
        whole - chance([*words[:at], other, *words[at + 1 :]])
        for at in range(len(words))
    ]


def deleted(chance, words, other):
    whole = chance(words)
    return [whole - chance(words[:at] + words[at + 1 :]) for at in range(len(words))]


def one_after_another(chance, words, other):
    whole = chance(words)
    return [
        whole - chance([other] * (at + 1) + words[at + 1 :]) for at in range(len(words))
    ]


def what_is_left(chance, words, other):
    return [chance(words) - fall for fall in influence(chance, words, other)]


def every_place(chance, words, other):
    return sorted(influence(chance, words, other), reverse=True)


RIGHT = {grade_grown: grown, grade_influence: influence}
WRONG = {
    grade_grown: {
        "a row is a query": lambda rows: grown(rows).mT,
        "in the future": from_the_right,
        "does not add up to 1": overwritten,
        "the maps are (1, 5, 5), not (2, 5, 5)": lambda rows: grown(rows)[:1],
        "in another order": lambda rows: grown(rows).flip(0),
    },
    grade_influence: {
        "replace the word": deleted,
        "put each word back": one_after_another,
        "the sign": lambda *args: [-fall for fall in influence(*args)],
        "keep the sign": lambda *args: [abs(fall) for fall in influence(*args)],
        "what is left of the chance": what_is_left,
        "3 numbers for 4 words": lambda *args: influence(*args)[:-1],
        "it is [8.0, 2.0, 1.0, -2.0]": every_place,
    },
}
