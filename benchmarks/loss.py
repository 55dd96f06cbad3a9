"""Measure the seconds of training to a loss on the whole validation text.

nanoGPT runs its own train.py, with the command that its README gives for a CPU. Its
output says how long each step took; steps that also evaluate count as a median step.
Our models run the library's loop, seed after seed. One function evaluates all of them,
on every token of the validation text.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.contenders import SMALL, num_parameters
from benchmarks.nanogpt import documented_seconds, nanogpt_run
from benchmarks.ours import Racer, racers
from benchmarks.peers import NanoGPT
from benchmarks.run import Results, Run
from tested_transformer.data import split
from tested_transformer.training import evaluate, train

__all__ = ["measure", "run_ours", "whole_loss"]

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
    count = (len(tokens) - 1) // context
    read, targets = (
        part[: count * context].view(-1, context) for part in (tokens[:-1], tokens[1:])
    )
    pairs = [*zip(read.split(batch), targets.split(batch), strict=True)]
    if rest := (len(tokens) - 1) % context:
        pairs.append((tokens[-rest - 1 : -1][None], tokens[-rest:][None]))
    total = sum(
        F.cross_entropy(logits(x).flatten(0, 1), y.flatten(), reduction="sum").item()
        for x, y in pairs
    )
    return total / (len(tokens) - 1)


def run_nanogpt(run: Run, validation: Tensor) -> dict:
    """Run nanoGPT's documented command, and evaluate the model that it saved."""
    assert run.nanogpt is not None
    steps = 10 if run.quick else 2000
    start = time.perf_counter()
    printed, saved = nanogpt_run(
        run.nanogpt, run.text(), COMMAND, steps=steps, threads=run.threads
    )
    wall = time.perf_counter() - start
    seconds, step = documented_seconds(printed, steps=steps)
    contender = NanoGPT(run.nanogpt)
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


def run_ours(racer: Racer, tokens: Tensor, validation: Tensor, *, seed: int) -> dict:
    """Train one model from scratch, and only then evaluate it."""
    torch.manual_seed(seed)
    model = racer.contender.model(SMALL)
    start = time.perf_counter()
    train(model, tokens, replace(racer.recipe, seed=seed))
    seconds = time.perf_counter() - start
    model.eval()
    loss = whole_loss(model, validation, SMALL.context)
    assert abs(loss - evaluate(model, validation)) < 1e-4
    return {
        "seed": seed,
        "parameters": num_parameters(model),
        "steps": racer.recipe.steps,
        "training_seconds": round(seconds, 2),
        "loss": round(loss, 4),
    }


def measure(run: Run) -> Results:
    """Train every contender; ours seed by seed, before and after nanoGPT's long run."""
    data, validation = split(run.tokens())
    contenders = racers()
    if run.quick:
        validation = validation[:2000]
        contenders = [_shorter(racer) for racer in contenders]
    entries: dict[str, dict] = {
        racer.contender.name: {
            "target_loss": racer.loss,
            "recipe": racer.recipe.to_dict(),
            "runs": [],
        }
        for racer in contenders
    }
    turns = [(seed, racer) for racer in contenders for seed in racer.seeds]
    turns.sort(key=lambda turn: turn[0])  # each has its turn with every seed
    theirs: dict | str = "not measured: --nanogpt was not given"
    for number, (seed, racer) in enumerate(turns):
        if number == len(turns) // 2 and run.nanogpt:
            theirs = run_nanogpt(run, validation)
        one = run_ours(racer, data, validation, seed=seed)
        entries[racer.contender.name]["runs"].append(one)
    return {
        "validation_tokens": len(validation),
        "contenders": entries,
        "nanoGPT": theirs,
    }


def _shorter(racer: Racer) -> Racer:
    warmup = min(racer.recipe.warmup, 5)
    recipe = replace(racer.recipe, steps=10, warmup=warmup)
    return replace(racer, recipe=recipe, seeds=racer.seeds[:2])
