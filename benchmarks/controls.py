"""Train variants of the book's GPT that say how far the record ``parts`` reaches.

Its rows compare models after 500 steps of one recipe, with one thing changed. Here are
variants in which two things are, and four times as many steps for the models that miss
most; and, as a measurement of its own, all its rows with the rates halved and doubled,
since the recipe's were chosen with the whole model.
"""

from torch import nn

from benchmarks.parts import PARTS, SIZE, Part, combined, rates, train_parts
from benchmarks.run import Results, Run
from tested_transformer.gpt import DecoderBlock

__all__ = ["CONTROLS", "RATES", "measure", "measure_rates"]


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


def _random(block: DecoderBlock) -> None:
    """Leave queries and keys as they were drawn: scores near 0."""
    for projection in (block.attention.q_proj, block.attention.k_proj):
        projection.requires_grad_(False)


def _larger_random(block: DecoderBlock) -> None:
    """Draw them so large that scores differ, twice as large as ``nn.Linear`` does."""
    _start_as_linear(block)
    _random(block)
    for projection in (block.attention.q_proj, block.attention.k_proj):
        projection.weight *= 2


def _one_matrix(block: DecoderBlock) -> None:
    block.attention.k_proj = block.attention.q_proj


def _both(first: str, second: str) -> Part:
    return combined(PARTS[first], PARTS[second])


_WIDE = Part({"num_heads": 1, "head_dim": 256})
_LONG = PARTS["four times the steps"]
_NO_ROOT = PARTS["no root"]
_ALONE = "one head, no feed-forward"
_MISSING = ("plain averages", "window of 4", "no positions", "no norms", "one layer")
_FROM_VECTORS = {
    "no W^Q, no W^K": _without("q_proj", "k_proj"),
    "no W^Q, no W^K, no W^V": _without("q_proj", "k_proj", "v_proj"),
}
# Of the rates, that of the matrices alone: queries and keys are among them.
_SLOW, _FAST = (Part(recipe={"muon_lr": rates(x)["muon_lr"]}) for x in (0.25, 3))
_TIMES = {"½": Part(recipe=rates(0.5)), "2": Part(recipe=rates(2))}

CONTROLS: dict[str, Part] = {
    **_FROM_VECTORS,
    "random W^Q, W^K": Part(change=_random),
    "larger random W^Q, W^K": Part(change=_larger_random),
    "one matrix for W^Q and W^K": Part(change=_one_matrix),
    "averages, no feed-forward": _both("plain averages", "no feed-forward"),
    "one layer, no positions": _both("one layer", "no positions"),
    "one layer, as many parameters": combined(PARTS["one layer"], Part({"d_ff": 643})),
    "one head, no root": _both("one head", "no root"),
    "one head of 256": _WIDE,
    "one head of 256, no root": combined(_WIDE, _NO_ROOT),
    "one head of 256, slow": combined(_WIDE, _SLOW),
    "one head of 256, slow, no root": combined(_WIDE, _SLOW, _NO_ROOT),
    "six layers, no residual": _both("six layers", "no residual"),
    "six layers, no feed-forward": _both("six layers", "no feed-forward"),
    "narrow feed-forward": Part({"d_ff": SIZE["d_model"]}),
    "no root, larger start": combined(Part(change=_start_as_linear), _NO_ROOT),
    "fast": _FAST,
    "fast, no root": combined(_FAST, _NO_ROOT),
    **{
        f"{name}, 4 × steps": combined(part, _LONG)
        for name, part in {
            **{name: PARTS[name] for name in (*_MISSING, "no feed-forward", _ALONE)},
            **_FROM_VECTORS,
        }.items()
    },
}
RATES: dict[str, Part] = {
    f"{name}, {times} × rates": combined(part, rate)
    for times, rate in _TIMES.items()
    for name, part in PARTS.items()
    if not part.recipe
}


def measure(run: Run) -> Results:
    """Train each variant from some seeds."""
    return train_parts(run, CONTROLS)


def measure_rates(run: Run) -> Results:
    """Train each row of ``parts`` at other rates."""
    return train_parts(run, RATES)
