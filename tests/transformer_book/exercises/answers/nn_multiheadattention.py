"""Answers to the exercises of *Meet nn.MultiheadAttention*: right ones, wrong ones."""

import torch

from tested_transformer.checkpoints import from_torch
from transformer_book import grade_heads_of_a_layer, grade_packed_weights


def pack(*weights):
    return torch.cat(weights)


def head_by_head(*weights):
    """As some checkpoints have it: queries, keys and values of head 0, of head 1."""
    heads = [weight.unflatten(0, (2, -1)) for weight in weights]
    return torch.stack(heads, dim=1).flatten(0, 2)


def heads_of(module, x):
    training = module.training
    module.eval()
    try:
        return module(x, x, x, average_attn_weights=False)[1]
    finally:
        module.train(training)


def back_to_training(module, x):
    weights = module.eval()(x, x, x, average_attn_weights=False)[1]
    module.train()
    return weights


def batch_in_front(module, x):
    return from_torch(module).eval()(x, return_weights=True)[1]


def without_a_scale(module, x):
    weights = heads_of(module, x).square()
    return weights / weights.sum(dim=-1, keepdim=True)


def without_dropout(module, x):
    module.dropout = 0.0
    return module(x, x, x, average_attn_weights=False)[1]


RIGHT = {grade_heads_of_a_layer: heads_of, grade_packed_weights: pack}
WRONG = {
    grade_heads_of_a_layer: {
        "no weights came back": lambda module, x: module(x, x, x, need_weights=False)[
            1
        ],
        "(2, 5, 5): the heads are": lambda module, x: module.eval()(x, x, x)[1],
        "dropout is on": lambda module, x: module(x, x, x, average_attn_weights=False)[
            1
        ],
        "is not any more": lambda module, x: module.eval()(
            x, x, x, average_attn_weights=False
        )[1],
        "and now it trains": back_to_training,
        "has none any more": without_dropout,
        "(5, 3, 2, 2) is not (2, 3, 5, 5)": batch_in_front,
        "these are other weights": without_a_scale,
    },
    grade_packed_weights: {
        "(6, 18) is not (18, 6)": lambda q, k, v: torch.cat([q, k, v], dim=1),
        "q is transposed": lambda q, k, v: torch.cat([q.T, k.T, v.T]),
        "the block of q holds k": lambda q, k, v: torch.cat([k, q, v]),
        "the rows of q are mixed with others": head_by_head,
    },
}
