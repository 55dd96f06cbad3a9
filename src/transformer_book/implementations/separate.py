"""Multi-head attention as tutorials write it: ``W_q``, ``W_k``, ``W_v``, ``W_o``."""

import math

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from transformer_book.implementations.question import (
    Parameters,
    Question,
    Step,
    by_autograd,
)

__all__ = ["SeparateAttention", "convert", "prepare"]


# --8<-- [start:module]
class SeparateAttention(nn.Module):
    """Attend with four separate projections; return the weights with the output."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def split_heads(self, x: Tensor) -> Tensor:
        """Turn (B, T, D) into (B, H, T, d_k)."""
        batch, length, _ = x.shape
        return x.view(batch, length, self.num_heads, self.d_k).transpose(1, 2)

    def combine_heads(self, x: Tensor) -> Tensor:
        """Turn (B, H, T, d_k) into (B, T, D)."""
        batch, _, length, _ = x.shape
        return x.transpose(1, 2).contiguous().view(batch, length, -1)

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"]]:
        """Attend; ``mask`` is True where a query may attend."""
        q = self.split_heads(self.W_q(query))
        k = self.split_heads(self.W_k(key))
        v = self.split_heads(self.W_v(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(dim=-1)
        return self.W_o(self.combine_heads(weights @ v)), weights


# --8<-- [end:module]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Change the names: ``q_proj.weight`` is ``W_q.weight``."""
    return {f"W_{name[0]}{name[6:]}": weight for name, weight in weights.items()}


def prepare(question: Question) -> Step:
    """Pass the sequences as query, key and value."""
    module = SeparateAttention(question.x.shape[-1], question.layer.num_heads)

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        arguments = (x, context, context, question.mask)
        return functional_call(module, parameters, arguments)[0]

    return by_autograd(call, convert, question)
