"""Answers to the exercises of *Many heads*: right ones, and wrong ones."""

from copy import deepcopy

import torch
from torch import nn

from transformer_book import grade_my_split, grade_without_head


def my_split(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3)


def dealt_out(x, num_heads):
    return x.reshape(*x.shape[:2], -1, num_heads).permute(0, 3, 1, 2)


def zeroing(name, where, copy=deepcopy):
    """Return an answer that zeroes a part of a weight, by default in a copy."""

    @torch.no_grad()
    def answer(attention, x, head):
        quiet, width = copy(attention), attention.head_dim
        own = slice(head * width, (head + 1) * width)
        quiet.get_parameter(f"{name}.weight")[where(own)] = 0
        return quiet(x)

    return answer


def columns(own):
    return slice(None), own


def rows(own):
    return own


without_head = zeroing("o_proj", columns)


def alone(attention, x, head):
    """Return what the head says in place of what the others say."""
    return attention(x) - without_head(attention, x, head)


RIGHT = {grade_my_split: my_split, grade_without_head: without_head}
WRONG = {
    grade_my_split: {
        "head 0 holds the wrong numbers": lambda x, n: x.reshape(
            x.shape[0], n, x.shape[1], -1
        ),
        "cut, but not moved": lambda x, n: x.reshape(*x.shape[:2], n, -1),
        "every 3rd feature": dealt_out,
    },
    grade_without_head: {
        "mind the biases": zeroing("v_proj", rows),
        "head 1 still speaks: other": zeroing("o_proj", rows),
        "the layer was changed": zeroing("o_proj", columns, nn.Module.train),
        "head 1 still speaks": alone,
    },
}
