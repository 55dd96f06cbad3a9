"""Answers to the exercises of *Why divide by the square root*: right and wrong ones."""

import math

import torch

from transformer_book import grade_find_scale, grade_unit_scale


def weight_of(attend, d, query):
    q = torch.zeros(1, d, dtype=torch.double)
    q[0, : len(query)] = torch.tensor(query)
    k = torch.cat([(q != 0).double(), torch.zeros_like(q)])
    v = torch.tensor([[1.0], [0.0]], dtype=torch.double)
    return attend(q, k, v).item()


def log_ratio(weight):
    return math.log(weight / (1 - weight)) if 0 < weight < 1 else math.inf


def of_one_direction(attend, d):
    weight = weight_of(attend, d, [1.0] * d)
    return math.log(weight / (1 - weight)) / d


def find_scale(attend, d):
    return log_ratio(weight_of(attend, d, [1.0]))


def unit_scale(d, var_q, var_k):
    return (d * var_q * var_k) ** -0.5


RIGHT = {grade_find_scale: find_scale, grade_unit_scale: unit_scale}
WRONG = {
    grade_find_scale: {
        "that is a weight": lambda attend, d: weight_of(attend, d, [1.0]),
        "the logarithm": lambda attend, d: math.log(weight_of(attend, d, [1.0])),
        "times d": lambda attend, d: log_ratio(weight_of(attend, d, [1.0] * d)),
        "have become 0 and 1": of_one_direction,
        "ask for less": lambda attend, d: log_ratio(weight_of(attend, d, [1000.0])),
        "0.5000 for a scale of 1.0000 at width 4": lambda attend, d: d**-0.5,
    },
    grade_unit_scale: {
        "the variances for 1": lambda d, var_q, var_k: d**-0.5,
        "by its square": lambda d, var_q, var_k: 1 / (d * var_q * var_k),
        "not a sum": lambda d, var_q, var_k: (d * (var_q + var_k)) ** -0.5,
        "larger": lambda d, var_q, var_k: (d * var_q * var_k) ** 0.5,
        "standard deviations": lambda d, var_q, var_k: d**-0.5 / (var_q * var_k),
        "variance 64.00": lambda d, var_q, var_k: 1.0,
    },
}
