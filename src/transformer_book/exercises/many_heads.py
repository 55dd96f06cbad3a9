"""Graders of *Many heads*."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_my_split", "grade_without_head"]


def grade_my_split(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Grade a function that cuts ``(B, T, D)`` into heads, ``(B, H, T, d_k)``.

    Args:
        answer: A function of the features and the number of heads.
    """
    for size, count, length, width in ((2, 3, 5, 7), (1, 2, 2, 2)):
        numbers = torch.arange(float(size * length * count * width))
        x = numbers.reshape(size, length, count * width)
        got = answer(x, count)
        assert got.shape != (size, length, count, width) or length == count, (
            "cut, but not moved: the heads stand before the positions"
        )
        assert got.shape == (size, count, length, width), (
            f"the shape is {tuple(got.shape)}"
        )
        for head, features in enumerate(x.split(width, dim=-1)):
            assert not torch.equal(got[:, head], x[..., head::count]), (
                f"head {head} holds every {count}rd feature: a head's lie side by side"
            )
            assert torch.equal(got[:, head], features), (
                f"the shape is right, but head {head} holds the wrong numbers"
            )
    return "right"


def grade_without_head(
    answer: Callable[[MultiHeadAttention, Tensor, int], Tensor],
) -> str:
    """Grade a function that returns a layer's output with one head silent.

    Args:
        answer: A function of the layer, its input and the number of the head.
    """
    attention = MultiHeadAttention(d_model=15, num_heads=3).requires_grad_(False)
    x = torch.randn(2, 7, 15)
    before = attention(x)
    parts = [before - answer(attention, x, head) for head in range(3)]
    assert torch.equal(attention(x), before), "the layer was changed: work on a copy"
    changed = copy.deepcopy(attention)
    changed.v_proj.weight.unflatten(0, (3, 5))[1] += 1.0
    assert torch.allclose(answer(attention, x, 1), answer(changed, x, 1), atol=1e-5), (
        "head 1 still speaks: other values in it move the answer"
    )
    rest = before - torch.stack(parts).sum(dim=0)
    if not torch.allclose(rest, attention.o_proj.bias.expand_as(rest), atol=1e-5):
        constant = torch.allclose(rest, rest[0, 0].expand_as(rest), atol=1e-5)
        raise AssertionError(
            "something constant is left behind or lost: mind the biases"
            if constant
            else "the three heads and o_proj's bias do not add up to the output"
        )
    return "right"
