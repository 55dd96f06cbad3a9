"""Causal self-attention as small GPTs write it, with one packed projection."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from transformer_book.implementations.question import (
    Parameters,
    Question,
    Step,
    by_autograd,
)

__all__ = ["PackedAttention", "convert", "prepare"]


# --8<-- [start:module]
class PackedAttention(nn.Module):
    """Compute queries, keys and values of all heads in one matrix product."""

    triangle: Tensor

    def __init__(self, d_model: int, num_heads: int, max_seq_len: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.c_proj = nn.Linear(d_model, d_model)
        triangle = torch.tril(torch.ones(max_seq_len, max_seq_len))
        self.register_buffer("triangle", triangle, persistent=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Let every position attend to itself and to earlier ones."""
        batch, length, width = x.shape
        shape = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = self.c_attn(x).split(width, dim=2)
        q = q.view(shape).transpose(1, 2)
        k = k.view(shape).transpose(1, 2)
        v = v.view(shape).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
        scores = scores.masked_fill(self.triangle[:length, :length] == 0, float("-inf"))
        heads = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.c_proj(heads.contiguous().view(batch, length, width))


# --8<-- [end:module]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Lay the matrices on top of each other: all of q, all of k, all of v."""
    return {
        f"c_attn.{part}": torch.cat([weights[f"{name}_proj.{part}"] for name in "qkv"])
        for part in ("weight", "bias")
    } | {f"c_proj.{part}": weights[f"o_proj.{part}"] for part in ("weight", "bias")}


def prepare(question: Question) -> Step:
    """Attend causally to the sequence itself, which is all this module can do.

    Raises:
        ValueError: If the question has a context or is not causal.
    """
    if question.context is not None or not question.causal:
        raise ValueError("PackedAttention does only causal self-attention")
    _, length, d_model = question.x.shape
    module = PackedAttention(d_model, question.layer.num_heads, length)

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        return functional_call(module, parameters, (x,))

    return by_autograd(call, convert, question)
