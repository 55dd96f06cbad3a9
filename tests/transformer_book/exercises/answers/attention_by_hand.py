"""Answers to the exercises of *Attention by hand*: right ones, and wrong ones."""

import math

import torch

from attention_check import EXHIBITS, Steps
from transformer_book import grade_query, grade_safe_attend, grade_scores_gradient


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def scored(query, keys):
    return [dot(query, key) / math.sqrt(len(query)) for key in keys]


def averaged(exps, values):
    return [dot(exps, feature) / sum(exps) for feature in zip(*values, strict=True)]


def safe_attend(query, keys, values):
    scores = scored(query, keys)
    return averaged([math.exp(score - max(scores)) for score in scores], values)


def unsafe(query, keys, values):
    return averaged([math.exp(score) for score in scored(query, keys)], values)


def unscaled(query, keys, values):
    return averaged([math.exp(dot(query, key)) for key in keys], values)


def cut_off(query, keys, values):
    exps = [math.exp(min(score, 700)) for score in scored(query, keys)]
    return averaged(exps, values)


def not_normalized(query, keys, values):
    exps = [math.exp(score) for score in scored(query, keys)]
    return [dot(exps, feature) for feature in zip(*values, strict=True)]


def by(exhibit):
    """Attend as the library does, but for one exhibit of the bug museum."""
    steps: Steps = EXHIBITS[exhibit].steps

    def attend(query, keys, values):
        q, k, v = (torch.tensor(x).double() for x in ([query], keys, values))
        scores = steps.score(q[None, None], k[None, None], len(query) ** -0.5)
        weights = steps.weigh(scores, None)
        return (weights[0, 0] @ v)[0].tolist()

    return attend


def scores_gradient(weights, values, grad_output):
    pull = grad_output @ values.mT
    return weights * (pull - (weights * pull).sum(dim=-1, keepdim=True))


def minus_the_mean(weights, values, grad_output):
    pull = grad_output @ values.mT
    return pull - pull.mean(dim=-1, keepdim=True)


X = -math.sqrt(2) * math.log(2)

RIGHT = {
    grade_safe_attend: safe_attend,
    grade_query: [X, 0.0],
    grade_scores_gradient: scores_gradient,
}
WRONG = {
    grade_safe_attend: {
        "OverflowError for the query [4000.0, 3999.0]": unsafe,
        "wrong for the query [4000.0, 3999.0]": cut_off,
        "the scores are not divided by": unscaled,
        "the weights are not divided by": not_normalized,
        "return only the output": lambda *args: [*safe_attend(*args), []],
        "not divided by sqrt(d_k)": by("no-scale"),
        "wrong for the query [0.0, 1.0]": by("scale-upside-down"),
        "wrong for the query [4000": by("no-maximum-taken"),
        "wrong for the query": by("softmax-twice"),
        "wrong for": by("softmax-over-queries"),
    },
    grade_query: {
        "right before the scores are divided": [-math.log(2), 0.0],
        "the sign is wrong": [-X, 0.0],
        "the weights are [0.5, 0.25, 0.25]": [X, X],
    },
    grade_scores_gradient: {
        "this is the gradient of the weights": lambda w, v, g: g @ v.mT,
        "a row does not sum to 0": lambda w, v, g: w * (g @ v.mT),
        "the numbers are wrong": minus_the_mean,
        "the shape is (7,), not (5, 7)": lambda *args: scores_gradient(*args)[0],
    },
}
