"""Bugs in which one projection, bias or axis is taken for another.

The museum does not show them, since they are variants of its bugs.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tested_transformer.checking.exhibits.exhibit import exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention

__all__ = [
    "bias_of_keys_for_values",
    "copied_keys_split_without_transpose",
    "copied_values_split_without_transpose",
    "keys_and_values_exchanged",
    "keys_split_without_transpose",
    "no_bias_of_queries",
    "no_bias_of_the_output",
    "no_bias_of_values",
    "no_biases_of_the_three",
    "queries_and_keys_exchanged",
    "queries_for_keys",
    "queries_split_without_transpose",
    "scaled_by_length",
    "scaled_twice",
    "softmax_over_batch_and_heads",
    "softmax_over_heads",
    "values_for_keys",
    "values_split_without_transpose",
]

_Three = tuple[Tensor, Tensor, Tensor]


@exhibit("score")
def scaled_twice(q: Tensor, k: Tensor) -> Tensor:
    """The scores are divided by the head's width, and not by its root."""
    return q @ k.mT / q.shape[-1]


@exhibit("score")
def scaled_by_length(q: Tensor, k: Tensor) -> Tensor:
    """The scores are divided by the root of the number of keys."""
    return q @ k.mT / k.shape[-2] ** 0.5


@exhibit("weigh")
def softmax_over_heads(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the heads."""
    weights = scores.softmax(dim=1)
    return weights if mask is None else weights * mask


@exhibit("weigh")
def softmax_over_batch_and_heads(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the first axis, in which batch and heads are one."""
    weights = scores.flatten(0, 1).softmax(dim=0).view_as(scores)
    return weights if mask is None else weights * mask


@exhibit("project")
def queries_and_keys_exchanged(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The keys serve as queries, and the queries as keys."""
    return layer.k_proj(x), layer.q_proj(x), layer.v_proj(x)


@exhibit("project")
def queries_for_keys(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The queries serve as keys, too."""
    return layer.q_proj(x), layer.q_proj(x), layer.v_proj(x)


@exhibit("project")
def values_for_keys(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The values serve as keys, too."""
    return layer.q_proj(x), layer.v_proj(x), layer.v_proj(x)


@exhibit("project")
def keys_and_values_exchanged(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The keys serve as values, and the values as keys."""
    return layer.q_proj(x), layer.v_proj(x), layer.k_proj(x)


@exhibit("project")
def no_bias_of_queries(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The queries are projected without their bias."""
    return F.linear(x, layer.q_proj.weight), layer.k_proj(x), layer.v_proj(x)


@exhibit("project")
def no_bias_of_values(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The values are projected without their bias."""
    return layer.q_proj(x), layer.k_proj(x), F.linear(x, layer.v_proj.weight)


@exhibit("project")
def no_biases_of_the_three(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """Queries, keys and values are projected without their biases."""
    q, k, v = layer.q_proj, layer.k_proj, layer.v_proj
    return F.linear(x, q.weight), F.linear(x, k.weight), F.linear(x, v.weight)


@exhibit("mix")
def no_bias_of_the_output(layer: ExchangeableAttention, heads: Tensor) -> Tensor:
    """The output is projected without its bias."""
    return F.linear(heads, layer.o_proj.weight)


@exhibit("project")
def bias_of_keys_for_values(layer: ExchangeableAttention, x: Tensor) -> _Three:
    """The values get the bias of the keys."""
    v = F.linear(x, layer.v_proj.weight, layer.k_proj.bias)
    return layer.q_proj(x), layer.k_proj(x), v


def _wrongly_split(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2).reshape(heads.shape)


def _mixed(
    which: int,
    layer: ExchangeableAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attend with queries, keys or values that were split without the transpose."""
    heads = [q, k, v]
    copies = 1 if which == 0 else layer.num_heads // layer.num_kv_heads
    own = _wrongly_split(heads[which][:, ::copies])
    heads[which] = own.repeat_interleave(copies, dim=1)
    q, k, v = heads
    return _weighed(layer, q, k, v, mask)


def _weighed(
    layer: ExchangeableAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    weights = layer.steps.weigh(layer.steps.score(q, k), mask)
    return layer.steps.drop(weights, layer.dropout, layer.training) @ v, weights


@exhibit("attend")
def queries_split_without_transpose(*arguments: Any) -> Any:
    """Queries are split by a reshape without the transpose, so rows mix tokens."""
    return _mixed(0, *arguments)


@exhibit("attend")
def keys_split_without_transpose(*arguments: Any) -> Any:
    """Keys are split by a reshape without the transpose, so rows mix tokens."""
    return _mixed(1, *arguments)


@exhibit("attend")
def values_split_without_transpose(*arguments: Any) -> Any:
    """Values are split by a reshape without the transpose, so rows mix tokens."""
    return _mixed(2, *arguments)


@exhibit("attend")
def copied_keys_split_without_transpose(
    layer: ExchangeableAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Copies of keys are split without the transpose, so rows mix tokens."""
    shared = layer.num_kv_heads < layer.num_heads
    return _weighed(layer, q, _wrongly_split(k) if shared else k, v, mask)


@exhibit("attend")
def copied_values_split_without_transpose(
    layer: ExchangeableAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Copies of values are split without the transpose, so rows mix tokens."""
    shared = layer.num_kv_heads < layer.num_heads
    return _weighed(layer, q, k, _wrongly_split(v) if shared else v, mask)
