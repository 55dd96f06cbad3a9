"""Measure one training step: forward, loss, backward, clipping, optimizer.

All contenders use the same batches, prepared beforehand. Their own data loading is left
out, which favors those that build batches character by character.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import cycle

import torch
from torch import Tensor, nn

from benchmarks.contenders import SMALL, Contender, Size, num_parameters
from benchmarks.learning import seeded, windows
from benchmarks.measuring import in_turns
from benchmarks.ours import Ours, contestants
from benchmarks.peers import load
from benchmarks.run import Results, Run

__all__ = ["Batch", "batches_of", "measure", "training_step"]

Batch = tuple[Tensor, Tensor]

DOCUMENTED = "fp32, AdamW"
OWN_LOOP = "its own loop, batch and all"
# For each other way, whether it computes in bf16. Both use PyTorch's fused AdamW.
FUSED = {"fp32, fused AdamW": False, "bf16, fused AdamW": True}


def batches_of(tokens: Tensor, size: Size, count: int, *, seed: int = 0) -> list[Batch]:
    """Return ``count`` random batches of windows: inputs and targets."""
    drawn = windows(tokens, count * size.batch, size.context + 1, seeded(seed))
    return [
        (batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        for batch in drawn.split(size.batch)
    ]


def training_step(
    contender: Contender,
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    fused: bool,
    bf16: bool = False,
) -> Callable[[], float]:
    """Return a function that does one step on the next batch and returns its loss."""
    optimizer = contender.optimizer(model, fused=fused)
    model.train()
    turns = cycle(batches)
    precision = torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext()

    def step() -> float:
        with precision:
            loss = contender.loss(model, *next(turns))
        loss.backward()
        if contender.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), contender.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def measure(run: Run, size: Size = SMALL) -> Results:
    """Time one training step of each contender, as documented and in other ways.

    The documented way is fp32 with the contender's own optimizer. The others use
    PyTorch's fused AdamW, in fp32 and under bf16 autocast. Ours is also timed in its
    own loop, which is its documented way.
    """
    tokens = run.tokens()
    batches = batches_of(tokens, size, 64)
    steps: dict[tuple[str, str], Callable[[], object]] = {}
    entries: dict[str, dict] = {}
    for contender in [*load(run), *contestants()]:

        def fresh(contender: Contender = contender) -> nn.Module:
            torch.manual_seed(0)
            return contender.model(size)

        name = contender.name
        entries[name] = {
            "version": contender.version,
            "parameters": num_parameters(fresh()),
            "clips_gradients": contender.clip is not None,
            "ways": {},
        }
        if isinstance(contender, Ours):
            steps[name, OWN_LOOP] = contender.own_step(fresh(), tokens)
            if contender.recipe.optimizer != "adamw":
                continue  # the ways below are not its own
        steps[name, DOCUMENTED] = training_step(
            contender, fresh(), batches, fused=False
        )
        for way, bf16 in FUSED.items():
            steps[name, way] = training_step(
                contender, fresh(), batches, fused=True, bf16=bf16
            )
    rounds, calls = (3, 3) if run.quick else (8, 4)
    times = in_turns(steps, rounds=rounds, calls=calls, warm_up=3)
    for (name, way), taken in times.items():
        entries[name]["ways"][way] = taken.to_json()
    for entry in entries.values():
        ways = entry["ways"]
        documented = ways[OWN_LOOP if OWN_LOOP in ways else DOCUMENTED]
        entry["documented_ms"] = documented["median_ms"]
    return {"size": vars(size), "contenders": entries}
