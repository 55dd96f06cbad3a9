"""Time a step of each way to write attention, all with the same weights.

A step is causal self-attention in float32, forward and backward to the gradients of the
sequence and of every parameter. At the small size even plain Python is fast enough. JAX
compiles the step before the timing starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

import torch

from benchmarks.measuring import in_turns
from benchmarks.run import Results, Run
from tested_transformer import MultiHeadAttention
from transformer_book.implementations import Question

__all__ = ["NAMES", "SIZES", "Size", "measure", "question"]

# Each with its module, which is imported only when measured, as some need JAX.
NAMES = {
    "plain Python": "scalars",
    "NumPy, head by head": "per_head",
    "PyTorch, separate projections": "separate",
    "PyTorch, packed projection": "packed",
    "PyTorch, einsum": "einsum",
    "F.scaled_dot_product_attention": "functional",
    "nn.MultiheadAttention": "torch_layer",
    "Flax, packed Dense": "flax_dense",
    "nnx.MultiHeadAttention": "flax_layer",
}


@dataclass(frozen=True)
class Size:
    """The size of a question, and how many calls a turn has."""

    batch: int
    length: int
    width: int
    heads: int
    calls: int


SIZES = {"small": Size(1, 16, 32, 4, 5), "large": Size(8, 256, 256, 8, 2)}
TOO_SLOW = {"large": {"plain Python"}}


def question(size: Size) -> Question:
    """Return a question for causal self-attention, with random weights and input."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(d_model=size.width, num_heads=size.heads)
    x, direction = torch.randn(2, size.batch, size.length, size.width)
    return Question(layer, x, direction, causal=True)


def measure(
    run: Run, names: Sequence[str] = tuple(NAMES), sizes: Mapping[str, Size] = SIZES
) -> Results:
    """Time all implementations in turns at each size."""
    packages = ("jax", "flax", "numpy")
    report: dict = {"versions": {name: version(name) for name in packages}}
    for label, size in sizes.items():
        task, skipped = question(size), TOO_SLOW.get(label, set())
        modules = {
            name: import_module(f"transformer_book.implementations.{NAMES[name]}")
            for name in names
            if name not in skipped
        }
        steps = {name: module.prepare(task) for name, module in modules.items()}
        rounds, calls = (2, 1) if run.quick else (7, size.calls)
        times = in_turns(steps, rounds=rounds, calls=calls, warm_up=2)
        report[label] = {
            "size": vars(size),
            "step": {name: taken.to_json() for name, taken in times.items()},
        }
    return report
