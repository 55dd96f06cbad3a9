"""One question for all implementations, with weights that are all different."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tested_transformer.multihead import MultiHeadAttention
from transformer_book.implementations import Question

# Pairwise different: batch, heads, queries, keys, head width.
B, H, T, S, D_K = 2, 3, 5, 7, 4
D = H * D_K


def ask_of(
    dtype: torch.dtype, *, causal: bool = False, context: bool = False
) -> Question:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.double).to(dtype)

    layer = MultiHeadAttention(d_model=D, num_heads=H).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw(*parameter.shape) / 2)
    return Question(
        layer,
        x=draw(B, T, D),
        direction=draw(B, T, D),
        context=draw(B, S, D) if context else None,
        causal=causal,
    )


@pytest.fixture
def ask() -> Callable[..., Question]:
    """Ask with weights, biases included, in a type of number."""
    return ask_of
