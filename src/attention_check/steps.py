"""Attention in the open, in steps that can be replaced one at a time.

Shapes: B sequences, T queries and S keys, H heads of queries and G of keys and values,
d features in a head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Steps", "causal_mask"]

Reference = Any  # of reference.py, which takes these steps


def causal_mask(num_queries: int, num_keys: int) -> Tensor:
    """Return (T, S), ``True`` where a query may attend: the last query sees all."""
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(num_keys - num_queries)


# --8<-- [start:right]
def _project(
    layer: Reference, x: Tensor, context: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return layer.project_q(x), layer.project_k(context), layer.project_v(context)


def _split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _place(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    if not layer.norms_after_rotary:
        q, k = layer.normed(q, k)
    q, k = layer.turned(q, t), layer.turned(k, s)
    if layer.norms_after_rotary:
        q, k = layer.normed(q, k)
    return q, k, v


def _extend(kept: list[Tensor], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if not kept:
        return k, v
    return torch.cat([kept[0], k], dim=2), torch.cat([kept[1], v], dim=2)


def _share(k: Tensor, v: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    return k.repeat_interleave(copies, dim=1), v.repeat_interleave(copies, dim=1)


def _allow(layer: Reference, num_queries: int, num_keys: int) -> Tensor | None:
    return causal_mask(num_queries, num_keys)


def _hide(real: Tensor) -> Tensor | None:
    return real[:, None, None]


def _score(q: Tensor, k: Tensor, scale: float | Tensor) -> Tensor:
    return q @ k.mT * scale


def _weigh(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores.softmax(dim=-1)
    # A query that may attend to nothing gets zeros, also in the gradient.
    empty = ~mask.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~(mask | empty), float("-inf")).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def _drop(weights: Tensor, p: float, training: bool) -> Tensor:
    return F.dropout(weights, p, training)


def _attend(
    layer: Reference,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *at: Tensor,
) -> tuple[Tensor, Tensor | None]:
    scores = layer.scores(q, k, mask, *at)
    weights = layer.weights(scores, mask)
    return layer.steps.drop(weights, layer.dropout, layer.training) @ v, weights


def _merge(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


def _mix(layer: Reference, heads: Tensor) -> Tensor:
    return layer.project_o(heads)


# --8<-- [end:right]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of attention in order, each of them a function.

    Args:
        project: From the layer, its input and its context, which is the input in
            self-attention, to queries, keys and values.
        split: From features to heads.
        place: From the layer, heads of queries, keys and values, and the positions of
            queries and keys, to the same with norms and rotary positions.
        extend: From the kept keys and values, an empty list at first, and the new
            ones, to all keys and values.
        share: From heads of keys and values, and the number of copies of each, to as
            many heads as the queries have.
        allow: From the layer and the numbers of queries and keys to a causal mask.
        hide: From the tokens that are real, (B, S), to a mask that hides the others.
        score: From queries, keys and the scale to scores.
        weigh: From scores and mask to weights.
        drop: From weights, the dropout probability and whether the layer is in training
            mode, to weights.
        attend: From the layer, queries, keys, values, mask and the positions of queries
            and keys to the heads' outputs and their weights. Calls ``score``, ``weigh``
            and ``drop``.
        merge: From heads to features.
        mix: From the layer and its merged heads to the output.
    """

    project: Callable[..., tuple[Tensor, Tensor, Tensor]] = _project
    split: Callable[[Tensor, int], Tensor] = _split
    place: Callable[..., tuple[Tensor, Tensor, Tensor]] = _place
    extend: Callable[[list[Tensor], Tensor, Tensor], tuple[Tensor, Tensor]] = _extend
    share: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]] = _share
    allow: Callable[..., Tensor | None] = _allow
    hide: Callable[[Tensor], Tensor | None] = _hide
    score: Callable[[Tensor, Tensor, float | Tensor], Tensor] = _score
    weigh: Callable[[Tensor, Tensor | None], Tensor] = _weigh
    drop: Callable[[Tensor, float, bool], Tensor] = _drop
    attend: Callable[..., tuple[Tensor, Tensor | None]] = _attend
    merge: Callable[[Tensor], Tensor] = _merge
    mix: Callable[..., Tensor] = _mix
