"""Measure what choices of the fast recipe are worth: the loss without each."""

import statistics
from dataclasses import dataclass, field

from benchmarks.loss import run_ours
from benchmarks.ours import FAST, Ours, Racer
from benchmarks.run import Results, Run
from tested_transformer.data import split
from tested_transformer.training import Recipe

__all__ = ["CHOICES", "Choice", "conclude", "measure"]

# The seeds are not those of the race, because a recipe chosen on some seeds must be
# judged on others.
STEPS, SEEDS = 148, (11, 12, 13)


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


def measure(run: Run) -> Results:
    """Train with each choice undone in turn, and evaluate on all validation text."""
    data, validation = split(run.tokens())
    steps, seeds = STEPS, SEEDS
    if run.quick:
        steps, seeds, validation = 5, SEEDS[:2], validation[:2000]
    losses: dict[str, list[float]] = {name: [] for name in CHOICES}
    for seed in seeds:
        for name, choice in CHOICES.items():
            settings = {"steps": steps, "precision": "fp32", **choice.recipe}
            if run.quick:
                settings["warmup"] = 0
            recipe = Recipe.fast(**settings)
            racer = Racer(Ours({**FAST, **choice.model}, name, recipe), recipe, 0.0)
            loss = run_ours(racer, data, validation, seed=seed)["loss"]
            losses[name].append(loss)
            print(seed, name, loss, flush=True)
    return {"steps": steps, "seeds": list(seeds), "choices": conclude(losses)}


def conclude(losses: dict[str, list[float]]) -> dict[str, dict]:
    """Compare each choice with nothing undone, seed by seed.

    The first of ``losses`` has nothing undone. A choice is worth as much as the loss
    rises without it; ``least`` and ``most`` are the extremes over the seeds.
    """
    base = next(iter(losses.values()))
    compared: dict[str, dict] = {}
    for name, runs in losses.items():
        worth = [loss - usual for loss, usual in zip(runs, base, strict=True)]
        compared[name] = {
            "losses": runs,
            "mean": round(statistics.mean(runs), 4),
            "worth": round(statistics.mean(worth), 4),
            "least": round(min(worth), 4),
            "most": round(max(worth), 4),
        }
    return compared
