"""Measure the time and peak memory of attention layers.

A layer has four projections and 8 heads of 64 features, and reads a batch of 8 with
1,024 positions and a causal mask. The open attention without projections is measured
too.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.measuring import (
    answer_order,
    in_a_process,
    in_turns,
    mib,
    peak_memory,
)
from benchmarks.run import Results, Run
from tested_transformer import MultiHeadAttention, attention_with_weights

__all__ = ["attention_call", "measure"]

SIZE = {"batch": 8, "heads": 8, "length": 1024, "head_dim": 64}
CORE, OURS = "ours, open core", "ours, fused"
NAMES = (
    *(CORE, "ours, open", OURS),
    *("nn.MultiheadAttention, weights", "nn.MultiheadAttention"),
)
RASCHKA = "LLMs-from-scratch, fused projection and SDPA"


def attention_call(
    name: str,
    *,
    backward: bool,
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    raschka: str | None = None,
) -> Callable[[], object]:
    """Return a function that runs one layer forward, and optionally backward."""
    torch.manual_seed(0)
    if name == CORE:
        x = torch.randn(3, batch, heads, length, head_dim, requires_grad=backward)
        module = nn.Module()

        def layer(x: Tensor) -> Tensor:
            return attention_with_weights(*x, causal=True)[0]

    else:
        x = torch.randn(batch, length, heads * head_dim, requires_grad=backward)
        module, layer = _layer(name, heads * head_dim, heads, length, raschka)
        # Without gradients, because nn.MultiheadAttention has a fast path for that.
        module.train(backward)
    with torch.no_grad():
        gradient = torch.ones_like(layer(x)) if backward else None

    def call() -> object:
        if not backward:
            with torch.no_grad():
                return layer(x)
        x.grad = None
        module.zero_grad()
        return layer(x).backward(gradient)

    return call


def _layer(
    name: str, width: int, heads: int, length: int, raschka: str | None
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    if name.startswith("ours"):
        ours = MultiHeadAttention(d_model=width, num_heads=heads, fused=name == OURS)
        return ours, lambda x: ours(x, causal=True)
    if name == RASCHKA:
        assert raschka is not None
        # Imported here, so that measuring the others needs no checkout.
        peers = import_module("benchmarks.peers")
        theirs = peers.Raschka(Path(raschka)).attention(width, heads)
        return theirs, theirs
    # nn.MultiheadAttention needs an explicit mask, with True = may not attend.
    module = nn.MultiheadAttention(width, heads, batch_first=True)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = name.endswith("weights")
    how = {"attn_mask": mask, "is_causal": not weights, "need_weights": weights}
    return module, lambda x: module(x, x, x, **how)[0]


def measure(run: Run) -> Results:
    """Time all layers in turns, and measure the memory of each in its own process."""
    size = SIZE | ({"length": 256} if run.quick else {})
    checkout = run.llms_from_scratch
    orders: dict[str, dict] = dict.fromkeys(NAMES, size)
    if checkout:
        orders[RASCHKA] = {**size, "raschka": str(checkout.resolve())}
    layers: dict[str, dict] = {name: {} for name in orders}
    for key, backward in (("forward", False), ("forward_and_backward", True)):
        calls = {
            name: attention_call(name, backward=backward, **order)
            for name, order in orders.items()
        }
        times = in_turns(calls, rounds=2 if run.quick else 7)
        for name, order in orders.items():
            layers[name][key] = times[name].to_json()
            used = _memory(name, backward=backward, **order)
            layers[name][f"{key}_peak_mib"] = mib(used)
    return {
        "size": size,
        "memory": "resident set at its peak (VmHWM) above that before the call, "
        "after a call on 64 positions, each layer in a process of its own",
        "layers": layers,
    }


def _memory(name: str, **order: object) -> int:
    """Measure the memory of one layer in a fresh process."""
    used = in_a_process("attention", {"name": name, **order})
    assert isinstance(used, int)
    return used


def _peak(name: str, **order: int) -> int:
    # Memory that PyTorch allocates at its first call does not belong to the layer.
    attention_call(name, **order | {"length": 64})()
    return peak_memory(attention_call(name, **order))


if __name__ == "__main__":
    answer_order(_peak)
