"""Measure what choices of the fast recipe are worth: the loss without each."""

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


# Usual alternatives. AdamW has two rates, one after a warm-up, because the recipe's
# rate and its start without a warm-up were chosen for Muon.
CHOICES = {
    "nothing undone": Choice(),
    "Muon: AdamW, rate 0.002": Choice(recipe={"optimizer": "adamw", "lr": 2e-3}),
    "Muon: AdamW, rate 0.004, warm-up": Choice(
        recipe={"optimizer": "adamw", "lr": 4e-3, "warmup": 15}
    ),
    "ALiBi: rotary": Choice({"positions": "rotary"}),
    "ALiBi: learned positions": Choice({"positions": "learned"}),
}


def measure_worth(
    tokens: Tensor,
    *,
    steps: int = 148,
    seeds: Sequence[int] = (11, 12, 13),
    quick: bool = False,
) -> dict:
    """Train with each choice undone in turn, and evaluate on all validation text.

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
            settings = {"steps": steps, "precision": "fp32", **choice.recipe}
            if quick:
                settings["warmup"] = 0
            recipe = Recipe.fast(**settings)
            racer = Racer(Ours({**FAST, **choice.model}, name, recipe), recipe, 0.0)
            run = run_ours(racer, data, validation, seed=seed)
            losses[name].append(run["loss"])
            print(seed, name, run["loss"], flush=True)
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
