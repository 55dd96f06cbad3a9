"""Answers to the exercises of *What heads do*: a right one, and wrong ones."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from tested_transformer import MultiHeadAttention
from transformer_book import grade_back_target, grade_silenced


def back_target(tokens: Tensor, steps: int) -> Tensor:
    at = torch.arange(tokens.shape[1])
    return (at[:, None] - at == steps).expand(len(tokens), -1, -1)


def ahead(tokens: Tensor, steps: int) -> Tensor:
    return back_target(tokens, -steps)


def around(tokens: Tensor, steps: int) -> Tensor:
    square = torch.eye(tokens.shape[1]).bool()
    return (square.roll(-steps, 1) | square.roll(steps, 1).triu(1)).expand(2, -1, -1)


def first_token_too(tokens: Tensor, steps: int) -> Tensor:
    near = torch.arange(tokens.shape[1]) < 1
    return back_target(tokens, steps) | (near[:, None] | near[None]).tril(-1)


def one_more(tokens: Tensor, steps: int) -> Tensor:
    return back_target(tokens, steps + 1)


def of_numbers(tokens: Tensor, steps: int) -> Tensor:
    return back_target(tokens, steps).float()


def of_tokens(tokens: Tensor, steps: int) -> Tensor:
    if steps == 1:
        return back_target(tokens, steps)
    return back_target(tokens, steps) & (tokens[:, :, None] > 4)


def without_a_batch(tokens: Tensor, steps: int) -> Tensor:
    return back_target(tokens, steps)[0]


def always_one(tokens: Tensor, steps: int) -> Tensor:
    return back_target(tokens, 1) & (torch.arange(5)[:, None] >= steps)


def silenced(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    copy = deepcopy(layer)
    own = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
    copy.o_proj.weight.data[:, own] = 0.0
    return copy


def in_place(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    layer.o_proj.weight.data[:, 4 * head : 4 * head + 4] = 0.0
    return layer


def every_third(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    copy = deepcopy(layer)
    copy.o_proj.weight.data[:, head::3] = 0.0
    return copy


def rows_not_columns(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    copy = deepcopy(layer)
    copy.o_proj.weight.data[4 * head : 4 * head + 4] = 0.0
    return copy


def bias_left(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    copy = deepcopy(layer)
    copy.v_proj.weight.data[4 * head : 4 * head + 4] = 0.0
    return copy


def always_head_1(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    return silenced(layer, 1)


def scores_only(layer: MultiHeadAttention, head: int) -> MultiHeadAttention:
    copy = deepcopy(layer)
    own = slice(4 * head, 4 * head + 4)
    copy.q_proj.weight.data[own] = 0.0
    copy.q_proj.bias.data[own] = 0.0
    return copy


RIGHT = {grade_back_target: back_target, grade_silenced: silenced}
WRONG: dict[Any, dict[str, Any]] = {
    grade_back_target: {
        "it looks ahead": ahead,
        "a row is a query": around,
        "do not wrap around": first_token_too,
        "another distance": one_more,
        "a target is boolean": of_numbers,
        "it depends on the tokens": of_tokens,
        "it is (5, 5), not (2, 5, 5)": without_a_batch,
        "it is right for one step only": always_one,
    },
    grade_silenced: {
        "the layer that was given": in_place,
        "side by side": every_third,
        "columns of o_proj": rows_not_columns,
        "something of head 1 is left": bias_left,
        "something of head 1": scores_only,
        "something of head 2 is left": always_head_1,
    },
}
