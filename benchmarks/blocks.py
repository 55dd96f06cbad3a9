"""Measure what block attention misses, and how much time it saves.

A small model is trained to recall, as in ``benchmarks.recall``, with attention to all
keys or to chosen blocks, and then tested with other choices. Attention to a few blocks
and to all keys is timed at several lengths.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.recall import (
    BATCH,
    D_MODEL,
    NUM_HEADS,
    NUM_LAYERS,
    Recall,
    draw_pairs,
    train_on_pairs,
)
from tested_transformer import fused_attention
from tested_transformer.variants import (
    BlockAttention,
    attention_in_blocks,
    choose_blocks,
)

__all__ = ["CHOICES", "measure_blocks", "with_blocks"]

TRAINED = (8, 16, 32, 64)
PAIRS = 64  # with their questions they make 128 tokens
# The size of a block, and how many blocks a query reads, including its own.
TRAINED_WITH = (8, 4)
CHOICES = [(8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (4, 8), (16, 2), (32, 1)]


def with_blocks(model: Recall, size: int, count: int) -> Recall:
    """Let every layer of the model read blocks, without changing its weights."""
    for index, layer in enumerate(model.layers):
        blocks = BlockAttention(
            d_model=D_MODEL,
            num_heads=NUM_HEADS,
            block_size=size,
            num_chosen=count,
            fused=False,  # faster, where blocks are as small as here
        )
        blocks.load_state_dict(layer.state_dict())
        model.layers[index] = blocks
    return model


def measure_blocks(*, quick: bool = False) -> dict:
    """Train with all keys and with blocks, test each choice, and time attention."""
    steps, seeds, tests = (4, (1,), 2) if quick else (500, (1, 2, 3), 64)
    right: dict[str, dict[str, list[float]]] = {}
    for name in ("all keys", "blocks"):
        right[name] = {f"{size} x {count}": [] for size, count in CHOICES}
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recall(("softmax",) * NUM_LAYERS)
            if name == "blocks":
                with_blocks(model, *TRAINED_WITH)
            train_on_pairs(model, seed, steps, TRAINED)
            for size, count in CHOICES:
                share = _ask(with_blocks(model, size, count), tests)
                right[name][f"{size} x {count}"].append(share)
            print(name, seed, {c: r[-1] for c, r in right[name].items()}, flush=True)
    lengths = (256, 512) if quick else (1024, 2048, 4096, 8192, 16384, 32768)
    return {
        "size": {"steps": steps, "batch": BATCH, "pairs": PAIRS, "tests": tests},
        "trained with": list(TRAINED_WITH),
        "seeds": list(seeds),
        "right": right,
        "seconds": _time(lengths, 1 if quick else 3),
    }


@torch.no_grad()
def _ask(model: Recall, tests: int) -> float:
    generator = torch.Generator().manual_seed(0)
    keys, values, answers = draw_pairs(tests, PAIRS, generator)
    guesses = model(keys, values)[:, PAIRS:].argmax(dim=-1)
    return round((guesses == answers).float().mean().item(), 4)


@torch.no_grad()
def _time(lengths: tuple[int, ...], times: int) -> dict[str, Any]:
    """Time the processor for 2 heads of 64 features: the best of a few runs."""
    size, count = 128, 8
    seconds: dict[str, Any] = {"block size": size, "blocks": count, "heads": 2}
    for length in lengths:
        q, k, v = torch.randn(3, 1, 2, length, 64).unbind()
        ways: dict[str, Callable[[], object]] = {
            "all keys": lambda q=q, k=k, v=v: fused_attention(q, k, v, causal=True),
            "choosing": lambda q=q, k=k: choose_blocks(
                q, k, block_size=size, num_chosen=count
            ),
            "blocks": lambda q=q, k=k, v=v: attention_in_blocks(
                q,
                k,
                v,
                choose_blocks(q, k, block_size=size, num_chosen=count),
                block_size=size,
            ),
        }
        row = dict[str, float]()
        for name, way in ways.items():
            best = float("inf")
            for _ in range(times + 1):
                start = time.process_time()
                way()
                best = min(best, time.process_time() - start)
            row[name] = round(best, 5)
        print(length, row, flush=True)
        seconds[str(length)] = row
    return seconds
