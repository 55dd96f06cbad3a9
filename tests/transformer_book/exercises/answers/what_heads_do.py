"""Answers to the exercises of *What heads do*: a right one, and wrong ones."""

from copy import deepcopy

import torch
from torch import nn

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


def own(head):
    return slice(4 * head, 4 * head + 4)


def zeroing(*names, where, copy=deepcopy):
    """Return an answer that zeroes a part of some parameters."""

    def answer(layer, head):
        changed = copy(layer)
        for name in names:
            changed.get_parameter(name).data[where(head)] = 0.0
        return changed

    return answer


def columns(head):
    return slice(None), own(head)


silenced = zeroing("o_proj.weight", where=columns)

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
        "the layer that was given": zeroing(
            "o_proj.weight", where=columns, copy=nn.Module.train
        ),
        "side by side": zeroing(
            "o_proj.weight", where=lambda head: (slice(None), slice(head, None, 3))
        ),
        "columns of o_proj": zeroing("o_proj.weight", where=own),
        "something of head 1 is left": zeroing("v_proj.weight", where=own),
        "something of head 1": zeroing("q_proj.weight", "q_proj.bias", where=own),
        "something of head 2 is left": lambda layer, head: silenced(layer, 1),
    },
}
