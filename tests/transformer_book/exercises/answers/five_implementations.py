"""Answers to the exercises of *Five implementations*: right ones, and wrong ones."""

import torch

from transformer_book import grade_softmax_backward, grade_unpack, grade_unpack_groups
from transformer_book.implementations import flax_dense


def unpack(packed, num_heads):
    by_head = packed.unflatten(0, (num_heads, 3, -1))
    return by_head.transpose(0, 1).flatten(1, 2).unbind(0)


def exchanged(packed, num_heads):
    q, k, v = unpack(packed, num_heads)
    return q, v, k


def queries_first(packed, num_heads):
    by_kind = packed.unflatten(0, (3, num_heads, -1))
    return by_kind.transpose(0, 1).flatten(1, 2).unbind(0)


def checked(packed, num_heads):
    """Unpack, and pack again as Flax's one dense layer does."""
    parts = unpack(packed, num_heads)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    weights = {f"{name}.bias": torch.zeros(20) for name in names}
    weights |= {
        f"{name}.weight": weight
        for name, weight in zip(names, (*parts, torch.zeros(20, 20)), strict=True)
    }
    again = flax_dense.convert(weights, num_heads)["qkv_proj.kernel"].T
    assert torch.equal(again, packed)
    return parts


def unpack_groups(packed, num_heads, num_kv_heads):
    per_group = num_heads // num_kv_heads
    groups = packed.unflatten(0, (num_kv_heads, per_group + 2, -1))
    parts = groups.split([per_group, 1, 1], dim=1)
    return [part.flatten(0, 2) for part in parts]


def kinds_first(packed, num_heads, num_kv_heads):
    d_k = len(packed) // (num_heads + 2 * num_kv_heads)
    sizes = [num_heads * d_k, num_kv_heads * d_k, num_kv_heads * d_k]
    return list(packed.split(sizes))


def of_each_head(packed, num_heads, num_kv_heads):
    """Take the queries of the groups in turn."""
    q, k, v = unpack_groups(packed, num_heads, num_kv_heads)
    by_group = q.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1))
    return [by_group.transpose(0, 1).flatten(0, 2), k, v]


RIGHT = {
    grade_unpack: checked,
    grade_unpack_groups: unpack_groups,
    grade_softmax_backward: lambda w, d: w * (d - (w * d).sum(dim=-1, keepdim=True)),
}
WRONG = {
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
            part.flip(0) for part in unpack(packed, heads)
        ],
    },
    grade_unpack_groups: {
        "not all queries": kinds_first,
        "a query is not": of_each_head,
        "are exchanged": lambda *packed: [unpack_groups(*packed)[i] for i in (0, 2, 1)],
        "not 10": lambda packed, heads, kv_heads: packed.chunk(10),
        "q of shape (20, 7)": lambda packed, heads, kv_heads: packed.split(
            [20, 20, 10]
        ),
        "a key is not": lambda *packed: [
            part.flip(0) if len(part) < 30 else part for part in unpack_groups(*packed)
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
