"""Measure one training step: forward, loss, backward, clipping, optimizer.

All contenders use the same batches, prepared beforehand. Their own data loading is left
out, which favors those that build batches character by character.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from benchmarks.contenders import SMALL, Contender, Size, num_parameters
from benchmarks.measuring import in_turns, ratio
from benchmarks.ours import Ours

__all__ = ["batches_of", "measure_training_step", "training_step"]

Batch = tuple[Tensor, Tensor]

DOCUMENTED = "fp32, AdamW"
OWN_LOOP = "its own loop, batch and all"


def batches_of(tokens: Tensor, size: Size, count: int, *, seed: int = 0) -> list[Batch]:
    """Return ``count`` random batches of windows: inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    last = len(tokens) - size.context - 1
    starts = torch.randint(last + 1, (count, size.batch, 1), generator=generator)
    windows = tokens[starts + torch.arange(size.context + 1)]
    return [(w[:, :-1].contiguous(), w[:, 1:].contiguous()) for w in windows]


def training_step(
    contender: Contender,
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    bf16: bool = False,
    fused: bool = False,
    compiled: bool = False,
) -> Callable[[], float]:
    """Return a function that does one step on the next batch and returns its loss."""
    optimizer = contender.optimizer(model, fused=fused)
    model.train()
    loss_of = torch.compile(contender.loss) if compiled else contender.loss
    device = next(model.parameters()).device.type
    precision = torch.autocast(device, torch.bfloat16) if bf16 else nullcontext()
    done = 0

    def step() -> float:
        nonlocal done
        inputs, targets = batches[done % len(batches)]
        done += 1
        with precision:
            loss = loss_of(model, inputs, targets)
        loss.backward()
        if contender.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), contender.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def measure_training_step(
    contenders: Sequence[Contender],
    tokens: Tensor,
    *,
    quick: bool = False,
    compiled: bool = False,
    size: Size = SMALL,
) -> dict:
    """Time one training step of each contender, as documented and in other ways.

    The documented way is fp32 with the contender's own optimizer. The others use
    PyTorch's fused AdamW, in fp32 and under bf16 autocast, optionally compiled. A
    contender's best is its fastest way. Ours is also timed in its own loop, which is
    its documented way.
    """
    batches = batches_of(tokens, size, 64)
    ways = [(False, False, False), (False, True, False), (True, True, False)]
    if compiled:
        ways += [(bf16, True, True) for bf16 in (False, True)]
    steps: dict[tuple[str, str], Callable[[], float]] = {}
    report: dict = {"size": vars(size), "contenders": {}}
    for contender in contenders:
        report["contenders"][contender.name] = {
            "version": contender.version,
            "parameters": num_parameters(contender.model(size)),
            "clips_gradients": contender.clip is not None,
            "ways": {},
        }
        if isinstance(contender, Ours):
            for compiling in (False, True) if compiled else (False,):
                torch.manual_seed(0)
                steps[contender.name, OWN_LOOP + ", compiled" * compiling] = (
                    contender.own_step(
                        contender.model(size), tokens, compiled=compiling
                    )
                )
            if contender.recipe.optimizer != "adamw":
                continue  # the ways below are not its own
        for bf16, fused, compiling in ways:
            way = _named(bf16, fused, compiling)
            torch.manual_seed(0)
            model = contender.model(size)
            steps[contender.name, way] = training_step(
                contender, model, batches, bf16=bf16, fused=fused, compiled=compiling
            )
    rounds, calls = (3, 3) if quick else (8, 4)
    times = in_turns(steps, rounds=rounds, calls=calls, warm_up=3)
    for (name, way), taken in times.items():
        report["contenders"][name]["ways"][way] = taken.to_json()
    for entry in report["contenders"].values():
        medians = {way: taken["median_ms"] for way, taken in entry["ways"].items()}
        entry["documented_ms"] = medians[
            OWN_LOOP if OWN_LOOP in medians else DOCUMENTED
        ]
        entry["best_way"] = min(medians, key=medians.__getitem__)
        entry["best_ms"] = medians[entry["best_way"]]
    report["ratios"] = _ratios(report["contenders"])
    return report


def _ratios(entries: dict[str, dict]) -> dict[str, dict[str, dict[str, float]]]:
    ours = [name for name in entries if name.startswith("ours")]
    return {
        own: {
            name: {
                "documented_over_our_best": round(
                    ratio(entry["documented_ms"], entries[own]["best_ms"]), 3
                ),
                "best_over_our_best": round(
                    ratio(entry["best_ms"], entries[own]["best_ms"]), 3
                ),
            }
            for name, entry in entries.items()
            if name not in ours
        }
        for own in ours
    }


def _named(bf16: bool, fused: bool, compiled: bool) -> str:
    words = ["bf16" if bf16 else "fp32", "fused AdamW" if fused else "AdamW"]
    return ", ".join(words + ["compiled"] * compiled)
