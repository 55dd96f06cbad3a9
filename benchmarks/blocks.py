"""Measure what block attention misses.

A small model is trained to recall, as in ``benchmarks.recall``, with attention to all
keys or to chosen blocks, and then tested with other choices.
"""

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
from tested_transformer.attentions import ChosenBlocks
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["CHOICES", "measure_blocks", "with_blocks"]

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


def measure_blocks(*, quick: bool = False) -> dict:
    """Train with all keys and with blocks, and test each choice."""
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
    return {
        "size": {"steps": steps, "batch": BATCH, "pairs": PAIRS, "tests": tests},
        "trained with": list(TRAINED_WITH),
        "seeds": list(seeds),
        "right": right,
    }


@torch.no_grad()
def _ask(model: Recall, tests: int) -> float:
    generator = torch.Generator().manual_seed(0)
    keys, values, answers = draw_pairs(tests, PAIRS, generator)
    guesses = model(keys, values)[:, PAIRS:].argmax(dim=-1)
    return round((guesses == answers).float().mean().item(), 4)
