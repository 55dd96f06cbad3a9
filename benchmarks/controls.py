"""Train variants of the book's GPT that say how far the record ``parts`` reaches.

Its rows compare models after 500 steps of one recipe, with one thing changed. Here are
variants in which two things are, other rates, and four times as many steps for the
models that miss most.
"""

from torch import nn

from benchmarks.parts import PARTS, SIZE, Part, combined, rates, train_parts
from benchmarks.run import Results, Run
from tested_transformer.gpt import DecoderBlock

__all__ = ["CONTROLS", "measure"]


def _start_as_linear(block: DecoderBlock) -> None:
    """Draw queries and keys as ``nn.Linear`` does, much larger than our GPT."""
    for projection in (block.attention.q_proj, block.attention.k_proj):
        assert isinstance(projection, nn.Linear)
        projection.reset_parameters()


def _without(*names: str) -> Part:
    """Leave the token's vector as it is where a projection would change it."""

    def change(block: DecoderBlock) -> None:
        for name in names:
            setattr(block.attention, name, nn.Identity())

    return Part(change=change)


def _one_matrix(block: DecoderBlock) -> None:
    block.attention.k_proj = block.attention.q_proj


def _both(one: str, other: str) -> Part:
    return combined(PARTS[one], PARTS[other])


_RATE = Part(recipe=rates(2))
_WIDE = Part({"num_heads": 1, "head_dim": 256})
_LONG = PARTS["four times the steps"]
_MISSING = ("plain averages", "window of 4", "no positions", "no norms", "one layer")

CONTROLS: dict[str, Part] = {
    "no W^Q, no W^K": _without("q_proj", "k_proj"),
    "no W^Q, no W^K, no W^V": _without("q_proj", "k_proj", "v_proj"),
    "one matrix for W^Q and W^K": Part(change=_one_matrix),
    "averages, no feed-forward": _both("plain averages", "no feed-forward"),
    "one layer, no positions": _both("one layer", "no positions"),
    "one head, no root": _both("one head", "no root"),
    "one head of 256": _WIDE,
    "one head of 256, no root": combined(_WIDE, PARTS["no root"]),
    "six layers, no residual": _both("six layers", "no residual"),
    "six layers, no feed-forward": _both("six layers", "no feed-forward"),
    "narrow feed-forward": Part({"d_ff": SIZE["d_model"]}),
    "no root, larger start": combined(Part(change=_start_as_linear), PARTS["no root"]),
    "twice the rate": _RATE,
    "no norms, twice the rate": combined(PARTS["no norms"], _RATE),
    **{f"{name}, 4 × steps": combined(PARTS[name], _LONG) for name in _MISSING},
}


def measure(run: Run) -> Results:
    """Train each variant from some seeds."""
    return train_parts(run, CONTROLS)
