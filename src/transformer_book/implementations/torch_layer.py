"""PyTorch's own layer, ``nn.MultiheadAttention``."""

from torch import Tensor, nn
from torch.func import functional_call

from tested_transformer.checkpoints import to_torch
from tested_transformer.multihead import MultiHeadAttention
from transformer_book.implementations.question import (
    Parameters,
    Question,
    Step,
    by_autograd,
)

__all__ = ["convert", "prepare"]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Pack three matrices into one, as ``checkpoints.to_torch`` does."""
    return _layer(weights, num_heads).state_dict()


def _layer(weights: Parameters, num_heads: int) -> nn.MultiheadAttention:
    some = weights["o_proj.bias"]
    layer = MultiHeadAttention(d_model=len(some), num_heads=num_heads).to(some.dtype)
    layer.load_state_dict(weights)
    return to_torch(layer)


def prepare(question: Question) -> Step:
    """Invert the mask: in this layer True = ignore."""
    module = _layer(question.weights, question.layer.num_heads)
    how = {
        "need_weights": False,
        "attn_mask": None if question.mask is None else ~question.mask,
    }

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        return functional_call(module, parameters, (x, context, context), how)[0]

    return by_autograd(call, convert, question)
