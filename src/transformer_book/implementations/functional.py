"""Multi-head attention around PyTorch's own function for the middle."""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from transformer_book.implementations.question import (
    Parameters,
    Question,
    Step,
    by_autograd,
)

__all__ = ["convert", "functional_attention", "prepare"]


# --8<-- [start:attention]
def functional_attention(
    w: Parameters,
    num_heads: int,
    x: Float[Tensor, "B T D"],
    context: Float[Tensor, "B S D"],
    mask: Bool[Tensor, "T S"] | None = None,
) -> Float[Tensor, "B T D"]:
    """Project, let ``F.scaled_dot_product_attention`` attend, and mix.

    Args:
        w: Weights and biases, named as in this library's layer.
        num_heads: How many heads there are.
        x: The sequence of the queries.
        context: The sequence of keys and values.
        mask: True where a query may attend.
    """

    def project(sequence: Tensor, name: str) -> Tensor:
        heads = F.linear(sequence, w[f"{name}_proj.weight"], w[f"{name}_proj.bias"])
        return heads.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    q, k, v = project(x, "q"), project(context, "k"), project(context, "v")
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    merged = heads.transpose(1, 2).flatten(2)
    return F.linear(merged, w["o_proj.weight"], w["o_proj.bias"])


# --8<-- [end:attention]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Change nothing."""
    return dict(weights)


def prepare(question: Question) -> Step:
    """Pass weights and sequences on unchanged."""
    num_heads = question.layer.num_heads

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        return functional_attention(parameters, num_heads, x, context, question.mask)

    return by_autograd(call, convert, question)
