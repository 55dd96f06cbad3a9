"""Multi-head attention as formulas with named axes: one ``einsum`` for each step."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from transformer_book.implementations.question import (
    Parameters,
    Question,
    Step,
    by_autograd,
)

__all__ = ["convert", "einsum_attention", "prepare"]


# --8<-- [start:attention]
def einsum_attention(
    w: Parameters,
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    mask: Bool[Tensor, "T S"] | None = None,
) -> Float[Tensor, "B T D"]:
    """Attend without moving any axis: heads are an axis of the weights.

    Args:
        w: ``W_q``, ``W_k``, ``W_v`` of shape (D, H, d_k) and ``W_o`` of shape
            (H, d_k, D); ``b_q``, ``b_k``, ``b_v`` of shape (H, d_k) and ``b_o`` (D,).
        x: The sequence of the queries.
        context: The sequence of keys and values.
        mask: True where a query may attend.
    """
    q = torch.einsum("btd,dhk->bthk", x, w["W_q"]) + w["b_q"]
    k = torch.einsum("bsd,dhk->bshk", context, w["W_k"]) + w["b_k"]
    v = torch.einsum("bsd,dhk->bshk", context, w["W_v"]) + w["b_v"]
    scores = torch.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    heads = torch.einsum("bhts,bshk->bthk", scores.softmax(dim=-1), v)
    return torch.einsum("bthk,hkd->btd", heads, w["W_o"]) + w["b_o"]


# --8<-- [end:attention]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Transpose the matrices, and give heads an axis of their own."""
    converted: Parameters = {}
    for name in "qkv":
        matrix, bias = weights[f"{name}_proj.weight"].T, weights[f"{name}_proj.bias"]
        converted[f"W_{name}"] = matrix.unflatten(1, (num_heads, -1))
        converted[f"b_{name}"] = bias.unflatten(0, (num_heads, -1))
    converted["W_o"] = weights["o_proj.weight"].T.unflatten(0, (num_heads, -1))
    converted["b_o"] = weights["o_proj.bias"]
    return converted


def prepare(question: Question) -> Step:
    """Pass weights and sequences on unchanged."""

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        return einsum_attention(parameters, x, context, question.mask)

    return by_autograd(call, convert, question)
