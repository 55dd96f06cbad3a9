"""Measure what an indexer finds, what it misses, and what it costs.

A small model is trained to recall, as in ``benchmarks.recall``, with attention to all
keys. Then its layers read few keys, chosen by an indexer that learned from the weights
of its layer, or in ways that the indexer should beat.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch
from torch import Tensor

from benchmarks.learning import seeded
from benchmarks.measuring import in_turns, milliseconds
from benchmarks.recall import (
    BATCH,
    D_MODEL,
    NUM_HEADS,
    NUM_LAYERS,
    Recall,
    draw_pairs,
    note,
    share_right,
    train_on_pairs,
)
from benchmarks.run import Results, Run
from tested_transformer import attention_with_weights, causal_mask, fused_attention
from tested_transformer.attentions import (
    ChosenBlocks,
    ChosenKeys,
    attention_to_chosen,
    choose_keys,
    index_scores,
)
from tested_transformer.interfaces import LayerSettings
from tested_transformer.multihead import (
    Core,
    MultiHeadAttention,
    ScoreOptions,
    Softmax,
)

__all__ = ["COUNTS", "measure"]

TRAINED = (8, 16, 32, 64)
PAIRS = 64  # with their questions they make 128 tokens
COUNTS = (4, 8, 16, 32)  # how many keys a query reads
FEWEST = COUNTS[0]
BLOCK = 2
INDEXER = ChosenKeys(index_heads=2, index_dim=8)
FAST, SLOW = 5e-3, 1e-3  # learning rates of the two stages

# What is timed: heads and their width, those of the indexer, and keys that are read.
HEADS, WIDTH, INDEX_HEADS, INDEX_WIDTH, READ = 8, 64, 4, 32, 256


@dataclass(frozen=True, kw_only=True)
class _Control(Softmax):
    """Choose keys without an indexer.

    Args:
        way: ``own weights``, those with the largest weight of attention to all keys, in
            the mean of the heads; ``last keys`` or ``random keys``.
        count: How many keys a query reads.
    """

    way: str
    count: int

    def make_core(self, settings: LayerSettings) -> Core:
        """Return what attends so."""
        return self._attend

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Tensor, Tensor | None]:
        score = attention_with_weights(q, k, v, causal=True)[1].mean(dim=1)
        if self.way == "last keys":
            score = torch.arange(k.shape[2]).expand_as(score).double()
        if self.way == "random keys":
            score = torch.rand(score.shape, generator=seeded(1))
        past = causal_mask(q.shape[2])
        chosen = choose_keys(score.masked_fill(~past, float("-inf")), self.count)
        return attention_with_weights(q, k, v, mask=chosen[:, None])


def reading(model: Recall, core: Softmax) -> Recall:
    """Return a copy of the model that attends otherwise, with the same weights."""
    model = copy.deepcopy(model)
    for index, layer in enumerate(model.layers):
        torch.manual_seed(index)
        attention = MultiHeadAttention(
            d_model=D_MODEL, num_heads=NUM_HEADS, bias=False, fused=False, core=core
        )
        attention.load_state_dict(layer.state_dict(), strict=False)
        model.layers[index] = attention
    return model.eval()


def index_loss(model: Recall) -> Tensor:
    """Return the mean loss of the indexers in the last pass while training."""
    return torch.stack([layer.core.index_loss for layer in model.layers]).mean()


def train_on(
    model: Recall, seed: int, steps: int, *, part: str, rate: float = SLOW
) -> None:
    """Train ``all`` parameters, those of the ``indexers``, or all the ``others``."""
    for name, parameter in model.named_parameters():
        in_indexer = "indexer" in name
        parameter.requires_grad_(part == "all" or in_indexer == (part == "indexers"))
    indexed = isinstance(model.layers[0].core, torch.nn.Module) and part != "others"

    def to_loss(answering: Tensor) -> Tensor:
        if part == "indexers":
            return index_loss(model)
        return answering + index_loss(model) if indexed else answering

    train_on_pairs(model.train(), seed, steps, TRAINED, rate=rate, to_loss=to_loss)
    model.eval()


def measure(run: Run) -> Results:
    """Compare ways to choose keys, train with some of them, and count and time."""
    steps, warm, seeds, tests = (
        (4, 2, (1,), 2) if run.quick else (500, 200, (1, 2, 3), 64)
    )
    right: dict[str, dict[str, list[float]]] = {}
    trained: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {"before": [], "after": []}

    def test(model: Recall) -> float:
        return share_right(model, tests, PAIRS, seeded(0))

    for seed in seeds:
        torch.manual_seed(seed)
        plain = Recall(("softmax",) * NUM_LAYERS)
        train_on_pairs(plain, seed, steps, TRAINED)
        untrained = reading(plain, replace(INDEXER, dense=True))
        warmed = copy.deepcopy(untrained)
        with_few, together = (
            reading(untrained, replace(INDEXER, keys_per_query=FEWEST)) for _ in "ab"
        )
        for model, part in (
            (warmed, "indexers"),
            (with_few, "indexers"),
            (together, "all"),
        ):
            train_on(model, seed, warm, part=part, rate=FAST)
        for when, model in (("before", untrained), ("after", warmed)):
            model.train()(*draw_pairs(tests, PAIRS, seeded(0))[:2])
            losses[when].append(round(float(index_loss(model).detach()), 4))
        for count in COUNTS:
            keys = replace(INDEXER, keys_per_query=count)
            models = {
                "all keys": plain,
                "own weights": _control(plain, "own weights", count),
                "indexer": reading(warmed, keys),
                "indexer in fp8": reading(warmed, replace(keys, fp8=True)),
                "indexer, few keys": reading(with_few, keys),
                "indexer, untrained": reading(untrained, keys),
                "blocks": reading(plain, _blocks(count)),
                "last keys": _control(plain, "last keys", count),
                "random keys": _control(plain, "random keys", count),
            }
            for way, model in models.items():
                note(right, way, count, test(model))
        keys = replace(INDEXER, keys_per_query=FEWEST)
        for way, part, model in (
            ("all keys, no indexer", "all", copy.deepcopy(plain)),
            ("first stage with all keys", "all", reading(warmed, keys)),
            ("first stage with few keys", "all", with_few),
            ("all weights in both stages", "all", together),
            ("no first stage", "all", reading(untrained, keys)),
            ("indexer never trained", "others", reading(untrained, keys)),
            ("blocks", "all", reading(plain, _blocks(FEWEST))),
        ):
            train_on(model, seed + 10, warm, part=part)
            trained.setdefault(way, []).append(test(model))
        print(seed, right, trained, losses, flush=True)
    return {
        "size": {
            "steps": steps,
            "warm-up": warm,
            "batch": BATCH,
            "pairs": PAIRS,
            "tests": tests,
            "index heads": INDEXER.index_heads,
            "index dim": INDEXER.index_dim,
            "block": BLOCK,
        },
        "seeds": list(seeds),
        "right": right,
        "loss of the indexers": losses,
        f"then trained with {FEWEST} keys": trained,
        "cost": _cost(run),
    }


def _control(model: Recall, way: str, count: int) -> Recall:
    return reading(model, _Control(way=way, count=count))


def _blocks(count: int) -> ChosenBlocks:
    return ChosenBlocks(block_size=BLOCK, num_chosen=count // BLOCK)


@torch.no_grad()
def _cost(run: Run) -> dict[str, Any]:
    """Count and time what a query costs: one after many keys, or that of a text."""
    lengths = (512,) if run.quick else (1024, 4096, 16384, 65536)
    text_lengths = (64,) if run.quick else (1024, 4096)
    rounds, text_rounds = (2, 2) if run.quick else (25, 3)
    return {
        "size": {
            "heads": HEADS,
            "width": WIDTH,
            "keys read": READ,
            "index heads": INDEX_HEADS,
            "index width": INDEX_WIDTH,
        },
        "one query": {str(n): _timed(1, n, rounds) for n in lengths},
        "a whole text": {str(n): _timed(n, n, text_rounds) for n in text_lengths},
    }


def _timed(num_queries: int, length: int, rounds: int) -> dict[str, float]:
    """Return multiplications of a query, and processor milliseconds of all queries."""
    generator = seeded(length)

    def some(*shape: int) -> Tensor:
        return torch.randn(1, *shape, generator=generator)

    q = some(HEADS, num_queries, WIDTH)
    k, v = some(HEADS, length, WIDTH), some(HEADS, length, WIDTH)
    index_q, index_k = (
        some(INDEX_HEADS, num_queries, INDEX_WIDTH),
        some(length, INDEX_WIDTH),
    )
    weights = some(num_queries, INDEX_HEADS)
    past = causal_mask(num_queries, length)

    def score() -> Tensor:
        scores = index_scores(index_q, index_k, weights)
        return scores.masked_fill(~past, float("-inf"))

    scores = score()
    chosen = choose_keys(scores, READ)

    def read() -> Tensor:
        if num_queries == 1:
            return attention_to_chosen(q, k, v, chosen, keys_per_query=READ)
        return fused_attention(q, k, v, mask=chosen[:, None])

    calls: dict[str, Callable[[], object]] = {
        "all keys": lambda: fused_attention(q, k, v, causal=True),
        "scoring": score,
        "choosing": lambda: choose_keys(scores, READ),
        "reading": read,
    }
    times = in_turns(calls, rounds=rounds, clock=time.process_time)
    return {
        "products, all keys": 2 * HEADS * WIDTH * length,
        "products, scoring": INDEX_HEADS * (INDEX_WIDTH + 1) * length,
        "products, reading": 2 * HEADS * WIDTH * READ,
        **milliseconds(times),
    }
