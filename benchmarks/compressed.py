"""Measure what compressed keys recall, what they keep, and what they cost.

Small models are trained to recall, as in ``benchmarks.recall``. Their layers read a
window of tokens and entries, each pooled from several tokens, or what these should be
compared with: all tokens, a window with as many vectors, or means instead of gates.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.learning import seeded
from benchmarks.measuring import in_turns, milliseconds
from benchmarks.recall import (
    BATCH,
    D_MODEL,
    NUM_HEADS,
    TRAINED,
    Recall,
    note,
    share_right,
    train_on_pairs,
)
from benchmarks.run import Results, Run
from tested_transformer.attentions import (
    Compressed,
    CompressedAttention,
    EntryIndexer,
    attention_in_windows,
    choose_keys,
    entries_past,
    fused_attention_with_sink,
    index_scores,
)
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["ASKED", "WAYS", "measure"]

NUM_LAYERS = 2
PAIRS = 32
LENGTH = 2 * PAIRS  # tokens: pairs, and a question for each
ASKED = (8, 16, 32)
NO_ENTRIES = LENGTH + 1
# With 4 tokens for an entry and a window of 8, a text leaves 16 + 8 vectors.
QUARTER = Compressed(compress=4, window=8)
EIGHTH = Compressed(compress=8, window=8)
CHOSEN = replace(QUARTER, entries_per_query=4, index_dim=8)
WAYS = {
    "all tokens": Compressed(compress=NO_ENTRIES, window=LENGTH),
    "1 for 4, window 8": QUARTER,
    "1 for 4, means": QUARTER,
    "1 for 4, no window": replace(QUARTER, window=1),
    "1 for 4, overlapping": replace(QUARTER, overlap=True),
    "1 for 4, 4 chosen": CHOSEN,
    "1 for 8, window 8": EIGHTH,
    "window 24": Compressed(compress=NO_ENTRIES, window=LENGTH // 4 + 8),
    "window 16": Compressed(compress=NO_ENTRIES, window=LENGTH // 8 + 8),
}

# What is timed: heads, their width, the window, heads of the indexer and their width,
# and how many entries it chooses.
HEADS, WIDTH, WINDOW, INDEX_HEADS, INDEX_WIDTH, READ = 8, 64, 128, 4, 32, 64


def recalling(settings: Compressed, seed: int) -> Recall:
    """Return an untrained model whose layers attend so."""
    torch.manual_seed(seed)
    model = Recall(("softmax",) * NUM_LAYERS)
    for index in range(NUM_LAYERS):
        model.layers[index] = CompressedAttention(
            settings,
            d_model=D_MODEL,
            num_heads=NUM_HEADS,
            head_dim=D_MODEL // NUM_HEADS,
            rotary_dim=0,
        )
    return model


def without_gates(model: Recall) -> None:
    """Let entries be means: all gates are 0, and stay so."""
    for module in model.modules():
        if isinstance(module, CompressedAttention):
            nn.init.zeros_(module.compressor.gate_proj.weight).requires_grad_(False)
            module.compressor.position_bias.requires_grad_(False)


def with_new_indexers(model: Recall, seed: int) -> Recall:
    """Return a copy of a model whose indexers know nothing."""
    model, untrained = copy.deepcopy(model), recalling(CHOSEN, seed)
    for layer, drawn in zip(model.layers, untrained.layers, strict=True):
        layer.indexer = drawn.indexer
    return model


def train(model: Recall, seed: int, steps: int) -> None:
    """Train a model to recall, and its indexers, if it has any."""
    indexers = [
        module for module in model.modules() if isinstance(module, EntryIndexer)
    ]

    def to_loss(answering: Tensor) -> Tensor:
        losses = [indexer.index_loss for indexer in indexers]
        return answering + torch.stack(losses).mean() if losses else answering

    train_on_pairs(model.train(), seed, steps, TRAINED, to_loss=to_loss)
    model.eval()


def measure(run: Run) -> Results:
    """Train every way with three seeds; count what is kept; count and time a query."""
    steps, seeds, tests = (4, (1,), 2) if run.quick else (400, (1, 2, 3), 128)
    right: dict[str, dict[str, list[float]]] = {}

    def test(way: str, model: Recall) -> None:
        for pairs in ASKED:
            note(right, way, pairs, share_right(model, tests, pairs, seeded(0)))
        print(way, right[way], flush=True)

    for seed in seeds:
        for way, settings in WAYS.items():
            model = recalling(settings, seed)
            if "means" in way:
                without_gates(model)
            train(model, seed, steps)
            test(way, model)
            if settings is CHOSEN:
                test("1 for 4, 4, untrained", with_new_indexers(model, seed + 10))
    return {
        "size": {
            "steps": steps,
            "batch": BATCH,
            "d_model": D_MODEL,
            "heads": NUM_HEADS,
            "layers": NUM_LAYERS,
            "trained on": list(TRAINED),
            "tests": tests,
        },
        "seeds": list(seeds),
        "numbers of a layer": {way: _numbers(way) for way in WAYS},
        "right": right,
        "cost": _cost(run),
    }


def _numbers(way: str) -> int:
    """Return how many numbers the last token of a text can read, in one layer."""
    settings, width = WAYS[way], D_MODEL // NUM_HEADS
    entries = LENGTH // settings.compress
    index = 0 if settings.index_dim is None else settings.index_dim
    return width * settings.window + entries * (width + index)


@torch.no_grad()
def _cost(run: Run) -> dict[str, Any]:
    """Count and time a query after many tokens, and all queries of a text."""
    lengths = (1024,) if run.quick else (1024, 4096, 16384, 65536)
    text_lengths = (256,) if run.quick else (1024, 4096)
    rounds, text_rounds = (2, 2) if run.quick else (25, 3)
    return {
        "size": {
            "heads": HEADS,
            "width": WIDTH,
            "window": WINDOW,
            "chosen": READ,
            "index heads": INDEX_HEADS,
            "index width": INDEX_WIDTH,
        },
        "one query": {str(n): _timed(1, n, rounds) for n in lengths},
        "a whole text": {str(n): _timed(n, n, text_rounds) for n in text_lengths},
    }


_LAYERS = {
    "1 for 4": Compressed(compress=4, window=WINDOW),
    "1 for 4, chosen": Compressed(
        compress=4,
        window=WINDOW,
        entries_per_query=READ,
        index_heads=INDEX_HEADS,
        index_dim=INDEX_WIDTH,
    ),
    "1 for 128": Compressed(compress=128, window=WINDOW),
}


def _bytes(length: int) -> dict[str, int]:
    """Return the memory of the caches of a layer, with room for so many tokens."""
    size = {"d_model": HEADS * WIDTH, "num_heads": HEADS}
    usual = MultiHeadAttention(**size)
    layers: dict[str, Any] = {
        name: CompressedAttention(settings, **size, head_dim=WIDTH, rotary_dim=WIDTH)
        for name, settings in _LAYERS.items()
    }
    caches = {name: layer.new_cache(1, length) for name, layer in layers.items()}
    return {
        "a key and a value of each head": usual.new_cache(1, length).nbytes,
        "one vector": 4 * length * WIDTH,
        **{name: cache.nbytes for name, cache in caches.items()},
    }


def _timed(num_queries: int, length: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return multiplications of the last query, and processor milliseconds of all.

    Of a single query, also the memory of the caches.
    """
    generator = seeded(length)

    def some(*shape: int) -> Tensor:
        return torch.randn(1, *shape, generator=generator)

    q, sink = some(HEADS, num_queries, WIDTH), torch.zeros(HEADS)
    tokens = some(1, length, WIDTH)
    first = length - num_queries
    near = tokens[:, :, max(first - WINDOW + 1, 0) :]
    calls: dict[str, Callable[[], object]] = {
        "all tokens": lambda: fused_attention_with_sink(
            q, tokens, tokens, sink, causal=True
        )
    }
    products = {"all tokens": 2 * HEADS * WIDTH * length}
    for name, settings in _LAYERS.items():
        count, most = length // settings.compress, settings.entries_per_query
        entries, index_k = some(1, count, WIDTH), some(count, INDEX_WIDTH)
        index_q = some(INDEX_HEADS, num_queries, INDEX_WIDTH)
        weights = some(num_queries, INDEX_HEADS)
        past = entries_past(num_queries, count, compress=settings.compress, first=first)

        def attend(
            entries: Tensor = entries,
            readable: Tensor = past,
            index: tuple[Tensor, ...] = (index_q, index_k, weights),
            most: int | None = most,
        ) -> Tensor:
            if most is not None:
                scores = index_scores(*index).masked_fill(~readable, float("-inf"))
                readable = choose_keys(scores, most)[:, None]
            how = {"window": WINDOW, "entries_per_query": most}
            return attention_in_windows(q, near, entries, sink, readable, **how)

        calls[name] = attend
        read = count if most is None else min(most, count)
        scoring = 0 if most is None else INDEX_HEADS * (INDEX_WIDTH + 1) * count
        products[name] = 2 * HEADS * WIDTH * (min(WINDOW, length) + read) + scoring
    times = in_turns(calls, rounds=rounds, clock=time.process_time)
    row = {"products": products, "ms": milliseconds(times)}
    return row | ({"bytes": _bytes(length)} if num_queries == 1 else {})
