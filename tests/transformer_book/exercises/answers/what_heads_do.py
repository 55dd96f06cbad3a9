"""Answers to the exercises of *What heads do*: a right one, and wrong ones."""

from copy import deepcopy

import torch

from transformer_book import grade_back_target, grade_silenced


def back_target(tokens, steps):
    at = torch.arange(tokens.shape[1])
    return (at[:, None] - at == steps).expand(len(tokens), -1, -1)


def around(tokens, steps):
    square = torch.eye(tokens.shape[1]).bool()
    return (square.roll(-steps, 1) | square.roll(steps, 1).triu(1)).expand(2, -1, -1)


def first_token_too(tokens, steps):
    near = torch.arange(tokens.shape[1]) < 1
    return back_target(tokens, steps) | (near[:, None] | near[None]).tril(-1)


def of_tokens(tokens, steps):
    if steps == 1:
        return back_target(tokens, steps)
    return back_target(tokens, steps) & (tokens[:, :, None] > 4)


def always_one(tokens, steps):
    return back_target(tokens, 1) & (torch.arange(5)[:, None] >= steps)


def silenced(layer, head):
    copy = deepcopy(layer)
    own = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
    copy.o_proj.weight.data[:, own] = 0.0
    return copy


def in_place(layer, head):
    layer.o_proj.weight.data[:, 4 * head : 4 * head + 4] = 0.0
    return layer


def every_third(layer, head):
    copy = deepcopy(layer)
    copy.o_proj.weight.data[:, head::3] = 0.0
    return copy


def rows_not_columns(layer, head):
    copy = deepcopy(layer)
    copy.o_proj.weight.data[4 * head : 4 * head + 4] = 0.0
    return copy


def bias_left(layer, head):
    copy = deepcopy(layer)
    copy.v_proj.weight.data[4 * head : 4 * head + 4] = 0.0
    return copy


def scores_only(layer, head):
    copy = deepcopy(layer)
    own = slice(4 * head, 4 * head + 4)
    copy.q_proj.weight.data[own] = 0.0
    copy.q_proj.bias.data[own] = 0.0
    return copy


RIGHT = {grade_back_target: back_target, grade_silenced: silenced}
WRONG = {
    grade_back_target: {
        "it looks ahead": lambda tokens, steps: back_target(tokens, -steps),
        "a row is a query": around,
        "do not wrap around": first_token_too,
        "another distance": lambda tokens, steps: back_target(tokens, steps + 1),
        "a target is boolean": lambda tokens, steps: back_target(tokens, steps).float(),
        "it depends on the tokens": of_tokens,
        "it is (5, 5), not (2, 5, 5)": lambda *args: back_target(*args)[0],
        "it is right for one step only": always_one,
    },
    grade_silenced: {
        "the layer that was given": in_place,
        "side by side": every_third,
        "columns of o_proj": rows_not_columns,
        "something of head 1 is left": bias_left,
        "something of head 1": scores_only,
        "something of head 2 is left": lambda layer, head: silenced(layer, 1),
    },
}
