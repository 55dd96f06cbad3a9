"""Answers to the exercises of *Cross-attention*: a right one for each, wrong ones."""

import torch

from tested_transformer.masks import causal_mask
from transformer_book import grade_cross_attend, grade_joined_mask


def attend(x, context, w_q, w_k, w_v, *, power=0.5, dim=-1):
    q, k, v = x @ w_q, context @ w_k, context @ w_v
    return (q @ k.T / q.shape[-1] ** power).softmax(dim=dim) @ v


def without_softmax(x, context, *weights):
    w_q, w_k, w_v = weights
    return (x @ w_q) @ (context @ w_k).T / 2**0.5 @ (context @ w_v)


def joined(num_x, num_c):
    mask = torch.ones(num_x + num_c, num_x + num_c, dtype=torch.bool)
    mask[:num_x, :num_x] = False
    return mask


def alone(num_x, num_c):
    mask = torch.zeros(num_x + num_c, num_x + num_c, dtype=torch.bool)
    mask[:num_x, num_x:] = True
    return mask


def with_itself(num_x, num_c):
    return joined(num_x, num_c) | torch.eye(num_x + num_c, dtype=torch.bool)


def causal(num_x, num_c):
    mask = joined(num_x, num_c)
    mask[:num_x, num_x:] = causal_mask(num_x, num_c)
    mask[:num_x, num_x] = True
    return mask


RIGHT = {grade_cross_attend: attend, grade_joined_mask: joined}
WRONG = {
    grade_cross_attend: {
        "not divided by sqrt(d_k)": lambda *args: attend(*args, power=0.0),
        "by d_k itself": lambda *args: attend(*args, power=1.0),
        "over the queries": lambda *args: attend(*args, dim=0),
        "(7, 4) is not (4, 7)": lambda *args: attend(*args).T,
        "not the average of the values": without_softmax,
    },
    grade_joined_mask: {
        "not torch.float32": lambda num_x, num_c: joined(num_x, num_c).float(),
        "(5, 3) is not (8, 8)": lambda num_x, num_c: torch.ones(
            num_x, num_c, dtype=torch.bool
        ),
        "a row is empty": alone,
        "that may attend to x: 5 of 5": with_itself,
        "to x: 5 of 5": lambda num_x, num_c: torch.ones(
            num_x + num_c, num_x + num_c, dtype=torch.bool
        ),
        "are forbidden: 7": causal,
    },
}
