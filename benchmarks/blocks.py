"""Measure what block attention misses.

A small model is trained to recall, as in ``benchmarks.recall``, with attention to all
keys or to chosen blocks, and then tested with other choices.
"""

import torch

from benchmarks.learning import seeded
from benchmarks.recall import (
    BATCH,
    D_MODEL,
    NUM_HEADS,
    NUM_LAYERS,
    Recall,
    note,
    share_right,
    train_on_pairs,
)
from benchmarks.run import Results, Run
from tested_transformer.attentions import ChosenBlocks
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["CHOICES", "measure", "with_blocks"]

TRAINED = (8, 16, 32, 64)
PAIRS = 64  # with their questions they make 128 tokens
# The size of a block, and how many blocks a query reads, including its own.
TRAINED_WITH = (8, 4)
CHOICES = [(8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (4, 8), (16, 2), (32, 1)]


def with_blocks(model: Recall, size: int, count: int) -> Recall:
    """Let every layer of the model read blocks, without changing its weights."""
    for index, layer in enumerate(model.layers):
        blocks = MultiHeadAttention(
            d_model=D_MODEL,
            num_heads=NUM_HEADS,
            bias=layer.q_proj.bias is not None,
            fused=False,  # faster, where blocks are as small as here
            core=ChosenBlocks(block_size=size, num_chosen=count),
        )
        blocks.load_state_dict(layer.state_dict())
        model.layers[index] = blocks
    return model


def measure(run: Run) -> Results:
    """Train with all keys and with blocks, and test each choice."""
    steps, seeds, tests = (4, (1,), 2) if run.quick else (500, (1, 2, 3), 64)
    right: dict[str, dict[str, list[float]]] = {}
    for name in ("all keys", "blocks"):
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recall(("softmax",) * NUM_LAYERS)
            if name == "blocks":
                with_blocks(model, *TRAINED_WITH)
            train_on_pairs(model, seed, steps, TRAINED)
            for size, count in CHOICES:
                with_blocks(model, size, count)
                share = share_right(model, tests, PAIRS, seeded(0))
                note(right, name, f"{size} x {count}", share)
            print(name, seed, right[name], flush=True)
    return {
        "size": {"steps": steps, "batch": BATCH, "pairs": PAIRS, "tests": tests},
        "trained with": list(TRAINED_WITH),
        "seeds": list(seeds),
        "right": right,
    }
