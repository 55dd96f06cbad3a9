"""Measure the seconds of training to a loss on the whole validation text.

nanoGPT runs its own train.py, with the command that its README gives for a CPU. Its
output says how long each step took; steps that also evaluate count as a median step.
Our models run the library's loop, seed after seed. One function evaluates all of them,
on every token of the validation text.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.contenders import SMALL, Size, num_parameters
from benchmarks.nanogpt import documented_seconds, nanogpt_run
from benchmarks.ours import Racer
from benchmarks.peers import NanoGPT
from tested_transformer.training import Recipe, evaluate, train

__all__ = ["measure_race", "whole_loss"]

# From nanoGPT's README, "I only have a macbook".
COMMAND = (
    "train.py config/train_shakespeare_char.py --device=cpu --compile=False "
    "--eval_iters=20 --log_interval=1 --block_size=64 --batch_size=12 --n_layer=4 "
    "--n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)


@torch.no_grad()
def whole_loss(
    logits: Callable[[Tensor], Tensor], tokens: Tensor, context: int, batch: int = 64
) -> float:
    """Return the mean loss over a whole text: every token except the first, once.

    The text is cut into windows that do not overlap; in each, a token is predicted from
    the tokens before it.
    """
    total = 0.0
    windows = range(0, len(tokens) - 1, context)
    full = [start for start in windows if start + context < len(tokens)]
    for first in range(0, len(full), batch):
        rows = [tokens[s : s + context + 1] for s in full[first : first + batch]]
        total += _summed(logits, torch.stack(rows))
    rest = tokens[len(full) * context :]
    if len(rest) > 1:
        total += _summed(logits, rest[None])
    return total / (len(tokens) - 1)


def _summed(logits: Callable[[Tensor], Tensor], windows: Tensor) -> float:
    guesses = logits(windows[:, :-1].contiguous())
    wanted = windows[:, 1:].flatten()
    return F.cross_entropy(guesses.flatten(0, 1), wanted, reduction="sum").item()


def run_nanogpt(
    checkout: Path, text: str, validation: Tensor, *, threads: int, steps: int
) -> dict:
    """Run nanoGPT's documented command, and evaluate the model that it saved."""
    start = time.perf_counter()
    printed, saved = nanogpt_run(checkout, text, COMMAND, steps=steps, threads=threads)
    wall = time.perf_counter() - start
    seconds, step = documented_seconds(printed, steps=steps)
    contender = NanoGPT(checkout)
    model = contender.model(SMALL)
    model.load_state_dict(saved["model"])
    model.eval()
    loss = whole_loss(lambda x: contender.logits(model, x), validation, SMALL.context)
    return {
        "command": f"python {COMMAND}",
        "version": contender.version,
        "parameters": num_parameters(model),
        "steps": steps,
        "training_seconds": round(seconds, 2),
        "wall_seconds": round(wall, 2),
        "median_step_ms": round(1000 * step, 3),
        "its_best_estimate": round(float(saved["best_val_loss"]), 4),
        "loss": round(loss, 4),
    }


def run_ours(
    racer: Racer, tokens: Tensor, validation: Tensor, *, seed: int, size: Size = SMALL
) -> dict:
    """Train one model from scratch, and only then evaluate it."""
    torch.manual_seed(seed)
    model = racer.contender.model(size)
    start = time.perf_counter()
    train(model, tokens, replace(racer.recipe, seed=seed))
    seconds = time.perf_counter() - start
    model.eval()
    loss = whole_loss(model, validation, size.context)
    assert abs(loss - evaluate(model, validation)) < 1e-4
    return {
        "seed": seed,
        "parameters": num_parameters(model),
        "steps": racer.recipe.steps,
        "training_seconds": round(seconds, 2),
        "loss": round(loss, 4),
    }


def measure_race(
    racers: Sequence[Racer],
    text: str,
    tokens: Tensor,
    *,
    nanogpt: Path | None,
    threads: int,
    quick: bool = False,
) -> dict:
    """Train every contender; ours seed by seed, before and after nanoGPT's long run.

    Args:
        racers: Our models and recipes.
        text: The text.
        tokens: The same text, encoded.
        nanogpt: A checkout of nanoGPT.
        threads: How many threads each may use.
        quick: Only try the program out, with a few steps each.
    """
    cut = int(0.9 * len(tokens))
    data, validation = tokens[:cut], tokens[cut:]
    if quick:
        validation = validation[:2000]
        racers = [
            replace(each, recipe=_shorter(each.recipe), seeds=each.seeds[:2])
            for each in racers
        ]
    report: dict = {"validation_tokens": len(validation), "contenders": {}}
    for racer in racers:
        report["contenders"][racer.contender.name] = {
            "target_loss": racer.loss,
            "recipe": racer.recipe.to_dict(),
            "runs": [],
        }

    runs = [(seed, racer) for racer in racers for seed in racer.seeds]
    runs.sort(key=lambda run: run[0])  # each has its turn with every seed

    def run_some(some: Sequence[tuple[int, Racer]]) -> None:
        for seed, racer in some:
            run = run_ours(racer, data, validation, seed=seed)
            report["contenders"][racer.contender.name]["runs"].append(run)

    middle = len(runs) // 2
    run_some(runs[:middle])
    if nanogpt is None:
        report["nanoGPT"] = "not measured: --nanogpt was not given"
    else:
        steps = 10 if quick else 2000
        report["nanoGPT"] = run_nanogpt(
            nanogpt, text, validation, threads=threads, steps=steps
        )
    run_some(runs[middle:])
    for entry in report["contenders"].values():
        _conclude(entry, report["nanoGPT"])
    return report


def _conclude(entry: dict, theirs: dict | str) -> None:
    seconds = [run["training_seconds"] for run in entry["runs"]]
    losses = [run["loss"] for run in entry["runs"]]
    entry["median_seconds"] = round(statistics.median(seconds), 2)
    entry["slowest_seconds"] = max(seconds)
    entry["worst_loss"] = max(losses)
    entry["every_seed_at_target"] = max(losses) <= entry["target_loss"]
    if isinstance(theirs, dict):
        speed_up = theirs["training_seconds"] / entry["median_seconds"]
        entry["nanogpt_over_ours"] = round(speed_up, 2)


def _shorter(recipe: Recipe) -> Recipe:
    return replace(recipe, steps=10, warmup=min(recipe.warmup, 5))
