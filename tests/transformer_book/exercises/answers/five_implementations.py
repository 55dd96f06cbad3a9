"""Answers to the exercises of *Five implementations*: right ones, and wrong ones."""

from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_softmax_backward, grade_unpack
from transformer_book.implementations import flax_dense


def unpack(packed: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    by_head = packed.unflatten(0, (num_heads, 3, -1))
    return by_head.transpose(0, 1).flatten(1, 2).unbind(0)


def exchanged(packed: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    q, k, v = unpack(packed, num_heads)
    return q, v, k


def queries_first(packed: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    by_kind = packed.unflatten(0, (3, num_heads, -1))
    return by_kind.transpose(0, 1).flatten(1, 2).unbind(0)


def checked(packed: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """Unpack, and pack again as Flax's one dense layer does."""
    parts = unpack(packed, num_heads)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    weights = {f"{name}.bias": torch.zeros(20) for name in names}
    weights |= {
        f"{name}.weight": each
        for name, each in zip(names, (*parts, torch.zeros(20, 20)), strict=True)
    }
    again = flax_dense.convert(weights, num_heads)["qkv_proj.kernel"].T
    assert torch.equal(again, packed)
    return parts


RIGHT = {
    grade_unpack: checked,
    grade_softmax_backward: lambda w, d: w * (d - (w * d).sum(dim=-1, keepdim=True)),
}
WRONG: dict[Any, dict[str, Any]] = {
    grade_unpack: {
        "thirds of the rows": lambda packed, heads: packed.chunk(3),
        "every third row": lambda packed, heads: packed.unflatten(0, (-1, 3)).unbind(1),
        "is transposed": lambda packed, heads: [e.T for e in unpack(packed, heads)],
        "keys and values": exchanged,
        "(4, 5, 20)": lambda packed, heads: packed.unflatten(0, (heads, 3, -1)).unbind(
            1
        ),
        "wanted, not 4": queries_first,
        "not 1": lambda packed, heads: [packed],
        "not where it belongs": lambda packed, heads: [
            each.flip(0) for each in unpack(packed, heads)
        ],
    },
    grade_softmax_backward: {
        "each weight alone": lambda w, d: w * d,
        "own score": lambda w, d: w * (1 - w) * d,
        "over the queries": lambda w, d: w * (d - (w * d).sum(dim=0)),
        "a plain mean": lambda w, d: w * (d - d.mean(dim=-1, keepdim=True)),
        "must sum to 0": lambda w, d: d - (w * d).sum(dim=-1, keepdim=True),
        "not the gradient": lambda w, d: torch.zeros_like(w),
        "is (3,)": lambda w, d: (w * d).sum(dim=-1),
    },
}
