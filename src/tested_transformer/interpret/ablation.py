"""Ablation: what the model loses without a head, measured, and by a slope.

A gate says how much a head counts: 1 leaves it as it is, and 0 puts something else in
its place: zeros, its mean, or its output for another text. A gate is one number, so
that the loss has a gradient with respect to it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.gpt import GPT

__all__ = [
    "all_open",
    "gate_slopes",
    "gated_heads",
    "loss_changes",
    "mean_instead",
    "resampled_instead",
    "shut",
]


# --8<-- [start:gates]
def all_open(model: GPT) -> list[Float[Tensor, "H"]]:
    """Return a gate of 1 for every head, layer by layer."""
    like = model.head_weight
    return [like.new_ones(block.attention.num_heads) for block in model.blocks]


def shut(model: GPT, heads: Iterable[tuple[int, int]]) -> list[Float[Tensor, "H"]]:
    """Return a gate of 0 for the heads that are named, and of 1 for all others.

    Args:
        model: Whose heads.
        heads: ``(layer, head)`` of each.

    Raises:
        ValueError: If the model has no such head.
    """
    gates = all_open(model)
    for layer, head in heads:
        if not (0 <= layer < len(gates) and 0 <= head < len(gates[layer])):
            raise ValueError(f"there is no head {head} in layer {layer}")
        gates[layer][head] = 0.0
    return gates


@contextmanager
def gated_heads(
    model: GPT,
    gates: Sequence[Float[Tensor, "*B H"]],
    *,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> Generator[None]:
    """Let each head count as much as its gate says, for as long as this lasts.

    What goes into ``o_proj`` becomes ``gate * head + (1 - gate) * instead``.

    Args:
        model: Any GPT. Its weights are not changed.
        gates: A number for each head, layer by layer, or for each sequence and head;
            with or without a gradient.
        instead: Of each layer what a closed gate lets through, as
            ``Recording.outputs`` has it or broadcasting to it; zeros by default.

    Raises:
        ValueError: If ``gates`` or ``instead`` do not fit the model.
    """
    _validate_layers(model, gates, instead)
    with ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            other = None if instead is None else instead[layer]
            hook = _gate(gates[layer], other)
            o_proj = block.attention.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(hook))
        yield


# --8<-- [end:gates]


# --8<-- [start:instead]
def mean_instead(
    outputs: Sequence[Float[Tensor, "B H T d_k"]],
) -> list[Float[Tensor, "1 H 1 d_k"]]:
    """Return the mean output of each head, over all positions of all texts."""
    return [each.mean(dim=(0, 2), keepdim=True) for each in outputs]


def resampled_instead(
    outputs: Sequence[Float[Tensor, "B H T d_k"]],
) -> list[Float[Tensor, "B H T d_k"]]:
    """Return, for each text, the outputs for the text before it in the batch.

    Raises:
        ValueError: If there is one text only.
    """
    if any(len(each) < 2 for each in outputs):
        raise ValueError("outputs are of one text: to exchange them takes 2")
    return [each.roll(1, dims=0) for each in outputs]


# --8<-- [end:instead]


# --8<-- [start:hook]
def _gate(gate: Tensor, instead: Tensor | None) -> Callable[..., tuple[Tensor]]:
    """Return the hook that stands before one ``o_proj``."""

    def hook(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        heads = inputs[0].unflatten(-1, (gate.shape[-1], -1))
        count = gate[..., None, :, None]
        gated = count * heads
        if instead is not None:
            gated = gated + (1 - count) * instead.transpose(1, 2)
        return (gated.flatten(-2),)

    return hook


# --8<-- [end:hook]


def _validate_layers(
    model: GPT, gates: Sequence[Tensor], instead: Sequence[Tensor] | None
) -> None:
    heads = [block.attention.num_heads for block in model.blocks]
    found = [gate.shape[-1] for gate in gates]
    if found != heads:
        raise ValueError(f"gates are for {found} heads; the model has {heads}")
    if instead is not None and len(instead) != len(heads):
        raise ValueError(f"instead is for {len(instead)} layers of {len(heads)}")


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
        loss: Runs the model, and returns its loss.
        instead: What a shut head puts out; see ``gated_heads``.
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
    """Return the slope of each sequence's loss by the gate of each head, all open.

    Each sequence has gates of its own, so that one backward pass is enough for all
    heads and all sequences.

    Args:
        model: Any GPT; set it to evaluate first if it drops out.
        losses: Runs the model, and returns the loss of each sequence, with a gradient.
        num_sequences: B.
        instead: What a shut head puts out; see ``gated_heads``.

    Source: Michel et al., 2019, "Are Sixteen Heads Really Better than One?", section
    4.1: the mean of the absolute slopes is how they rank heads.
    """
    gates = [gate.repeat(num_sequences, 1) for gate in all_open(model)]
    for gate in gates:
        gate.requires_grad_()
    with gated_heads(model, gates, instead=instead):
        return [*torch.autograd.grad(losses().sum(), gates)]


# --8<-- [end:slopes]
