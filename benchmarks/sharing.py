"""Measure how much time shared keys and values save, by each way of sharing them.

One step of generation: 2,048 cached tokens and one new query in each of 32 heads of 64
features, float32, no gradients. Between two calls of a layer, a model reads other
layers and weights. To imitate that, each call reads the next of 12 caches, which
together exceed the processor's cache. It also measures a prompt read at once.
"""

from collections.abc import Callable
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measuring import in_turns
from benchmarks.run import Results, Run
from tested_transformer import fused_attention

__all__ = ["WAYS", "inputs", "measure"]

HEADS, HEAD_DIM, LENGTH, PROMPT, LAYERS = 32, 64, 2048, 1024, 12
KV_HEADS = (32, 16, 8, 4, 2, 1)
SHARED = 4


def _plain(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _repeated(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = (heads.repeat_interleave(group, dim=1) for heads in (k, v))
    return _plain(q, k, v, causal=causal)


def _enabled(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def _grouped(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    # One query: those of a group are laid side by side. More: enable_gqa.
    return fused_attention(q, k, v, causal=causal)


WAYS: dict[str, Callable[..., Tensor]] = {
    "repeated": _repeated,
    "enable_gqa": _enabled,
    "grouped": _grouped,
}


def inputs(
    num_kv_heads: int, num_queries: int, num_keys: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and values of one sequence."""
    q = torch.randn(1, HEADS, num_queries, HEAD_DIM)
    k, v = torch.randn(2, 1, num_kv_heads, num_keys, HEAD_DIM)
    return q, k, v


def measure(run: Run) -> Results:
    """Time each way of sharing, then the fastest with more and fewer heads of keys."""
    torch.manual_seed(0)
    length, prompt = (64, 32) if run.quick else (LENGTH, PROMPT)
    layers, rounds = (2, 1) if run.quick else (LAYERS, 15)
    calls = {"a step, all heads": _call(_plain, HEADS, 1, length, layers)}
    calls |= {
        f"a step, {name}": _call(way, SHARED, 1, length, layers)
        for name, way in WAYS.items()
    }
    for heads in KV_HEADS:
        calls[f"heads {heads}"] = _call(_grouped, heads, 1, length, layers)
    steps = in_turns(calls, rounds=rounds, calls=layers, warm_up=layers)
    reading = {"a prompt, all heads": _call(_plain, HEADS, prompt, prompt, 1)}
    reading["a prompt, enable_gqa"] = _call(_enabled, SHARED, prompt, prompt, 1)
    prompts = in_turns(reading, rounds=1 if run.quick else 9)
    times = {name: taken.to_json() for name, taken in (steps | prompts).items()}
    return {
        "size": {
            "batch": 1,
            "heads": HEADS,
            "shared_by": SHARED,
            "head_dim": HEAD_DIM,
            "cached": length,
            "prompt": prompt,
            "caches": layers,
            "dtype": "float32",
        },
        "a step": _with_prefix(times, "a step, "),
        "grouped, by heads of keys": _with_prefix(times, "heads "),
        "a prompt": _with_prefix(times, "a prompt, "),
        "bytes": {str(heads): 2 * heads * HEAD_DIM * length * 4 for heads in KV_HEADS},
    }


def _call(
    way: Callable[..., Tensor],
    num_kv_heads: int,
    num_queries: int,
    num_keys: int,
    layers: int,
) -> Callable[[], object]:
    """Return a function that attends to the next of several caches."""
    caches = cycle([inputs(num_kv_heads, num_queries, num_keys) for _ in range(layers)])
    # A single query is the newest: it may see every key, with no mask.
    causal = num_queries > 1

    def call() -> object:
        with torch.no_grad():
            return way(*next(caches), causal=causal)

    return call


def _with_prefix(times: dict[str, dict], prefix: str) -> dict[str, dict]:
    return {
        name.removeprefix(prefix): taken
        for name, taken in times.items()
        if name.startswith(prefix)
    }
