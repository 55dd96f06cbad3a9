"""Answers to the exercises of *Many heads*: right ones, and wrong ones."""

import copy

import torch

from transformer_book import grade_my_split, grade_without_head


def my_split(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3)


def straight_to_the_shape(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def not_moved(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1)


def dealt_out(x, num_heads):
    return x.reshape(*x.shape[:2], -1, num_heads).permute(0, 3, 1, 2)


@torch.no_grad()
def without_head(attention, x, head):
    quiet = copy.deepcopy(attention)
    width = quiet.head_dim
    quiet.o_proj.weight[:, head * width : (head + 1) * width] = 0
    return quiet(x)


@torch.no_grad()
def without_values(attention, x, head):
    quiet = copy.deepcopy(attention)
    quiet.v_proj.weight.view(quiet.num_heads, quiet.head_dim, -1)[head] = 0
    return quiet(x)


@torch.no_grad()
def without_outputs(attention, x, head):
    quiet = copy.deepcopy(attention)
    width = quiet.head_dim
    quiet.o_proj.weight[head * width : (head + 1) * width] = 0
    return quiet(x)


@torch.no_grad()
def for_good(attention, x, head):
    width = attention.head_dim
    attention.o_proj.weight[:, head * width : (head + 1) * width] = 0
    return attention(x)


def alone(attention, x, head):
    """Return what the head says in place of what the others say."""
    return attention(x) - without_head(attention, x, head)


RIGHT = {grade_my_split: my_split, grade_without_head: without_head}
WRONG = {
    grade_my_split: {
        "head 0 holds the wrong numbers": straight_to_the_shape,
        "cut, but not moved": not_moved,
        "every 3rd feature": dealt_out,
    },
    grade_without_head: {
        "mind the biases": without_values,
        "head 1 still speaks: other": without_outputs,
        "the layer was changed": for_good,
        "head 1 still speaks": alone,
    },
}
