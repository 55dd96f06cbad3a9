"""Measure latency and throughput of a generation step, by batch size and length.

The model is a GPT of 8 layers, 1,024 features and 16 heads with random float32 weights,
which do not affect the time of a step. Nor does the content of the cache, so its length
is set without reading anything. Contenders take turns, so that the processor's cache
does not hold weights from the previous call. Times are those of the processor, so that
other programs count as little as possible.

A product of one weight matrix with a few rows is timed by itself, to tell what fetching
the weights costs from what the kernel for the product does.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.measuring import in_turns
from benchmarks.run import Results, Run
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["measure", "step_call"]

BATCHES, LENGTHS = (1, 2, 4, 8, 16), (0, 1000)
ROWS = (1, 2, 3, 4, 8, 16, 32)


def step_call(
    model: GPT, *, batch: int, length: int, count: int = 1
) -> Callable[[], object]:
    """Return a function that reads tokens of each sequence, on top of ``length``."""
    cache = model.new_cache(batch, max_length=length + count)
    tokens = torch.zeros(batch, count, dtype=torch.long)
    if length:
        with torch.inference_mode():
            model(tokens[:, :1].expand(batch, length), cache=cache, last_only=True)

    def call() -> object:
        cache.rewind(length)
        with torch.inference_mode():
            return model(tokens, cache=cache)

    return call


def measure(run: Run) -> Results:
    """Time a step for every batch and every number of cached tokens."""
    torch.manual_seed(0)
    layers, width = (2, 64) if run.quick else (8, 1024)
    model = GPT(
        GPTConfig(
            vocab_size=256,
            max_seq_len=max(LENGTHS) + 1,
            d_model=width,
            num_heads=16,
            num_layers=layers,
        )
    ).eval()
    sizes = [(batch, length) for length in LENGTHS for batch in BATCHES]
    calls = {
        f"{batch}, {length}": step_call(model, batch=batch, length=length)
        for batch, length in sizes
    }
    rounds = 2 if run.quick else 15
    times = in_turns(calls, rounds=rounds, warm_up=2, clock=time.process_time)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return {
        "size": {"layers": layers, "d_model": width, "heads": 16, "dtype": "float32"},
        "weight_bytes": weights,
        "steps": [
            {
                "batch": batch,
                "cached": length,
                "cache_bytes": 2 * layers * width * length * batch * 4,
                "time": times[f"{batch}, {length}"].to_json(),
            }
            for batch, length in sizes
        ],
        "products": _products(rounds, (width, 4 * width)),
    }


def _products(rounds: int, size: tuple[int, int]) -> dict:
    """Time the product of a few rows with twelve matrices, each in turn."""
    matrices = torch.randn(12, *size[::-1])

    def multiply(rows: torch.Tensor) -> None:
        for matrix in matrices:
            F.linear(rows, matrix)

    calls = {str(n): partial(multiply, torch.randn(n, size[0])) for n in ROWS}
    times = in_turns(calls, rounds=rounds, clock=time.process_time)
    return {
        "size": list(size),
        "matrices": len(matrices),
        "times": {rows: taken.to_json() for rows, taken in times.items()},
    }
