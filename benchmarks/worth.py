"""Measure what each choice of the fast recipe is worth: the loss without it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from benchmarks.ours import FAST, Ours, Racer
from benchmarks.race import run_ours
from tested_transformer.training import Recipe

__all__ = ["CHOICES", "Choice", "conclude", "measure_worth"]


@dataclass(frozen=True)
class Choice:
    """One choice undone: the settings of model and recipe without it."""

    model: dict[str, object] = field(default_factory=dict)
    recipe: dict[str, object] = field(default_factory=dict)


# The usual alternative to each choice. Of the rates 0.0005, 0.001, 0.002 and 0.004,
# 0.002 was the best for AdamW with seed 11.
CHOICES = {
    "nothing undone": Choice(),
    "Muon: AdamW": Choice(recipe={"optimizer": "adamw", "lr": 2e-3}),
    "momentum 0.85: 0.95": Choice(recipe={"muon_momentum": 0.95}),
    "linear fall: cosine to 0.1": Choice(
        recipe={"schedule": "cosine", "final_lr": 0.1, "warmup": 20}
    ),
    "ALiBi: rotary": Choice({"positions": "rotary"}),
    "ALiBi: learned positions": Choice({"positions": "learned"}),
    "smear: none": Choice({"smear": False}),
    "normed queries and keys: as they are": Choice({"qk_norm": False}),
    "small matrices: zeros where a block adds": Choice({"zero_init": True}),
    "squared ReLU: GELU": Choice({"activation": "gelu"}),
    "a head of its own: tied": Choice({"tie_head": True}),
}


def measure_worth(
    tokens: Tensor,
    *,
    steps: int = 190,
    seeds: Sequence[int] = (11, 12, 13),
    quick: bool = False,
) -> dict:
    """Train with every choice undone in turn, and evaluate on all validation text.

    Args:
        tokens: The text, encoded.
        steps: How many steps each run does.
        seeds: The seeds of each run. They are not those of the race, because a recipe
            chosen on some seeds must be judged on others.
        quick: Only try the program out.
    """
    cut = int(0.9 * len(tokens))
    data, validation = tokens[:cut], tokens[cut:]
    if quick:
        steps, seeds, validation = 5, seeds[:2], validation[:2000]
    losses: dict[str, list[float]] = {name: [] for name in CHOICES}
    for seed in seeds:
        for name, choice in CHOICES.items():
            settings = {"steps": steps, **choice.recipe}
            if quick:
                settings["warmup"] = 0
            recipe = Recipe.fast(**settings)
            racer = Racer(Ours({**FAST, **choice.model}, name, recipe), recipe, 0.0)
            run = run_ours(racer, data, validation, seed=seed)
            losses[name].append(run["loss"])
    return {"steps": steps, "seeds": list(seeds), "choices": conclude(losses)}


def conclude(losses: dict[str, list[float]]) -> dict[str, dict]:
    """Compare each choice with nothing undone, seed by seed.

    The first of ``losses`` has nothing undone. A choice is worth as much as the loss
    rises without it; ``least`` and ``most`` are the extremes over the seeds.
    """
    base = next(iter(losses.values()))
    found: dict[str, dict] = {}
    for name, each in losses.items():
        worth = [loss - whole for loss, whole in zip(each, base, strict=True)]
        found[name] = {
            "losses": each,
            "mean": round(statistics.mean(each), 4),
            "worth": round(statistics.mean(worth), 4),
            "least": round(min(worth), 4),
            "most": round(max(worth), 4),
        }
    return found
