"""Answers to the exercises of *A lookup that blurs*: a right one, and wrong ones."""

import math

import torch

from transformer_book import grade_soft_get, grade_temperature


def score(query, keys):
    return -0.5 * (query - keys) ** 2


def soft_get(query, keys, values, default, far):
    scores = torch.cat([score(query, keys), torch.tensor([-0.5 * far**2])])
    return scores.softmax(dim=-1) @ torch.cat([values, torch.tensor([default])])


def without_the_default(query, keys, values, **_):
    return score(query, keys).softmax(dim=-1) @ values


def by_the_largest_weight(query, keys, values, default, far):
    weights = score(query, keys).softmax(dim=-1)
    return weights.max() * (weights @ values) + (1 - weights.max()) * default


def by_half(query, keys, values, default, far):
    return 0.5 * (score(query, keys).softmax(dim=-1) @ values) + 0.5 * default


def by_threshold(query, keys, values, default, far):
    distance = (query - keys).abs().min()
    if distance == far:
        return 0.5 * (default + values[0])
    blurred = score(query, keys).softmax(dim=-1) @ values
    return torch.where(distance > far, default, blurred)


def by_the_distance(query, keys, values, default, far):
    scores = torch.cat([-((query - keys) ** 2), torch.tensor([-(far**2)])])
    return scores.softmax(dim=-1) @ torch.cat([values, torch.tensor([default])])


RIGHT = {grade_soft_get: soft_get, grade_temperature: 4 / math.log(18)}
WRONG = {
    grade_soft_get: {
        "with the nearest value": without_the_default,
        "answers with the nearest": by_the_largest_weight,
        "answers 250, not -100": by_half,
        "the default weighs in": lambda *args, default, far: soft_get(
            *args, default, 0.0
        ),
        "among three, it gives 800, not 791": by_the_distance,
        "it jumps": by_threshold,
    },
    grade_temperature: {
        "that is the scale": math.log(18) / 4,
        "two other keys": 4 / math.log(9),
        "a temperature is positive": -4 / math.log(18),
        "a weight of 0.8970": 1.4,
        "is positive: check": 0.0,
    },
}
