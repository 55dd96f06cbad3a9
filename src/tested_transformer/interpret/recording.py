"""Listening in: the weights and the output of every head, from the pass itself."""

from contextlib import ExitStack
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tested_transformer.gpt import GPT

__all__ = ["Recording", "record_heads"]


# --8<-- [start:recording]
class Recording(NamedTuple):
    """What one forward pass computed.

    Attributes:
        logits: (B, T, V).
        weights: Of each layer (B, H, T, T), what each query took of each value.
        outputs: Of each layer (B, H, T, d_k), what each head had gathered, before
            ``o_proj`` mixes the heads.
    """

    logits: Float[Tensor, "B T V"]
    weights: list[Float[Tensor, "B H T T"]]
    outputs: list[Float[Tensor, "B H T d_k"]]


def record_heads(model: GPT, tokens: Int[Tensor, "B T"]) -> Recording:
    """Read tokens, and keep what every head attended to and gave.

    Nothing is computed a second time: the weights are those of the pass that gave the
    logits, and the outputs are caught on their way into ``o_proj``. No gradient is
    kept.

    Args:
        model: Any GPT; set it to evaluate first if it drops out.
        tokens: Token ids.

    Raises:
        ValueError: If the tokens do not fit the model.
    """
    outputs: list[Tensor] = []

    def listen(module: nn.Module, inputs: tuple[Tensor]) -> None:
        heads = inputs[0].unflatten(-1, (-1, head_dim))
        outputs.append(heads.transpose(1, 2))

    head_dim = model.blocks[0].attention.head_dim
    with ExitStack() as hooks, torch.no_grad():
        for block in model.blocks:
            o_proj = block.attention.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(listen))
        logits, weights = model(tokens, return_weights=True)
    return Recording(logits, weights, outputs)


# --8<-- [end:recording]
