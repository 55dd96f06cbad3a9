"""Measure the cost of a training step, in operations and time, against each size.

PyTorch counts the operations of a step with open attention, whose products it knows.
The time is that of fused attention.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.contenders import SMALL, Size
from benchmarks.measuring import in_turns
from benchmarks.ours import Ours
from benchmarks.run import Results, Run
from benchmarks.train import batches_of, training_step

__all__ = ["counted_operations", "measure"]

SWEEPS: dict[str, list[int]] = {
    "context": [64, 128, 256, 512, 1024],
    "width": [64, 128, 256, 512],
    "layers": [1, 2, 4, 8],
    "batch": [3, 6, 12, 24, 48],
}


def counted_operations(size: Size, tokens: Tensor) -> int:
    """Return PyTorch's count of the operations of one step, forward and backward."""
    contender = Ours({"fused": False})
    model = contender.model(size)
    inputs, targets = batches_of(tokens, size, 1)[0]
    with FlopCounterMode(display=False) as counter:
        contender.loss(model, inputs, targets).backward()
    return counter.get_total_flops()


def measure(run: Run) -> Results:
    """Vary one size at a time, and measure operations and time."""
    tokens = run.tokens()
    sweeps: dict[str, dict] = {}
    for name, swept in SWEEPS.items():
        values = swept[:2] if run.quick else swept
        sizes = [replace(SMALL, **{name: value}) for value in values]
        steps = {}
        for value, size in zip(values, sizes, strict=True):
            torch.manual_seed(0)
            contender = Ours()
            batches = batches_of(tokens, size, 8)
            steps[str(value)] = training_step(
                contender, contender.model(size), batches, fused=True
            )
        times = in_turns(steps, rounds=2 if run.quick else 5, calls=2, warm_up=2)
        counts = [counted_operations(size, tokens) for size in sizes]
        medians = [times[str(value)].median for value in values]
        sweeps[name] = {
            "values": values,
            "step_ms": [round(1000 * median, 3) for median in medians],
            "operations": counts,
            "operations_per_second": [
                round(count / median)
                for count, median in zip(counts, medians, strict=True)
            ],
        }
    return {"around": vars(SMALL), "sweeps": sweeps}
