"""What a head is worth: how much the loss rises without it, and what a slope tells."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tested_transformer.gpt import GPT
from tested_transformer.interpret.gates import all_open, gated_heads, shut

__all__ = ["gate_slopes", "loss_changes"]


# --8<-- [start:measured]
@torch.no_grad()
def loss_changes(
    model: GPT,
    loss: Callable[[], Float[Tensor, ""]],
    *,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> list[Float[Tensor, "H"]]:
    """Measure how much the loss rises if one head alone is shut, for each in turn.

    Args:
        model: Any GPT; set it to evaluate first if it drops out.
        loss: Runs the model, and gives its loss.
        instead: What a shut head gives; see ``gated_heads``.
    """
    whole = loss()
    changes = all_open(model)
    for layer, of_layer in enumerate(changes):
        for head in range(len(of_layer)):
            with gated_heads(model, shut(model, [(layer, head)]), instead=instead):
                of_layer[head] = loss() - whole
    return changes


# --8<-- [end:measured]


# --8<-- [start:slopes]
def gate_slopes(
    model: GPT,
    losses: Callable[[], Float[Tensor, "B"]],
    *,
    num_sequences: int,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> list[Float[Tensor, "B H"]]:
    """Give the slope of each sequence's loss by the gate of each head, all open.

    Each sequence has gates of its own, so that one backward pass is enough for all
    heads and all sequences.

    Args:
        model: Any GPT; set it to evaluate first if it drops out.
        losses: Runs the model, and gives the loss of each sequence, with a gradient.
        num_sequences: B.
        instead: What a shut head gives; see ``gated_heads``.

    Source: Michel et al., 2019, "Are Sixteen Heads Really Better than One?", section
    4.1: the mean of the absolute slopes is how they rank heads.
    """
    gates = [gate.repeat(num_sequences, 1) for gate in all_open(model)]
    for gate in gates:
        gate.requires_grad_()
    with gated_heads(model, gates, instead=instead):
        return [*torch.autograd.grad(losses().sum(), gates)]


# --8<-- [end:slopes]
