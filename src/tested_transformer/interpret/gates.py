"""Gates: how much each head counts, from all of it to none, while the model runs.

A gate of 1 leaves a head as it is, and a gate of 0 puts something else in its place:
zeros, its mean, or what it gave for another text. One gate is one number, so that the
loss has a gradient with respect to it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.gpt import GPT

__all__ = ["all_open", "gated_heads", "mean_instead", "resampled_instead", "shut"]


# --8<-- [start:gates]
def all_open(model: GPT) -> list[Float[Tensor, "H"]]:
    """Give a gate of 1 for every head, layer by layer."""
    like = model.head_weight
    return [like.new_ones(block.attention.num_heads) for block in model.blocks]


def shut(model: GPT, heads: Iterable[tuple[int, int]]) -> list[Float[Tensor, "H"]]:
    """Give a gate of 0 for the heads that are named, and of 1 for all others.

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
    _check_layers(model, gates, instead)
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
    """Give what each head gives on average, over all positions of all texts."""
    return [each.mean(dim=(0, 2), keepdim=True) for each in outputs]


def resampled_instead(
    outputs: Sequence[Float[Tensor, "B H T d_k"]],
) -> list[Float[Tensor, "B H T d_k"]]:
    """Give each text what the head gave for the text before it, at the same position.

    Raises:
        ValueError: If there is one text only.
    """
    if any(len(each) < 2 for each in outputs):
        raise ValueError("outputs are of one text: to exchange them takes 2")
    return [each.roll(1, dims=0) for each in outputs]


# --8<-- [end:instead]


# --8<-- [start:hook]
def _gate(gate: Tensor, instead: Tensor | None) -> Callable[..., tuple[Tensor]]:
    """Make the hook that stands before one ``o_proj``."""

    def hook(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        heads = inputs[0].unflatten(-1, (gate.shape[-1], -1))
        count = gate[..., None, :, None]
        gated = count * heads
        if instead is not None:
            gated = gated + (1 - count) * instead.transpose(1, 2)
        return (gated.flatten(-2),)

    return hook


# --8<-- [end:hook]


def _check_layers(
    model: GPT, gates: Sequence[Tensor], instead: Sequence[Tensor] | None
) -> None:
    heads = [block.attention.num_heads for block in model.blocks]
    found = [gate.shape[-1] for gate in gates]
    if found != heads:
        raise ValueError(f"gates are for {found} heads; the model has {heads}")
    if instead is not None and len(instead) != len(heads):
        raise ValueError(f"instead is for {len(instead)} layers of {len(heads)}")
