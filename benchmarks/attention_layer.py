"""Measure the time and peak memory of attention layers.

A layer has four projections and 8 heads of 64 features, and reads a batch of 8 with
1,024 positions and a causal mask. The open attention without projections is measured
too.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.measuring import in_turns, peak_memory, ratio, slope
from tested_transformer import MultiHeadAttention, attention_with_weights

__all__ = ["attention_call", "measure_attention", "names"]

BATCH, HEADS, LENGTH, HEAD_DIM = 8, 8, 1024, 64
OURS = "ours, fused"
RASCHKA = "LLMs-from-scratch, fused projection and SDPA"


def names(*, raschka: bool) -> list[str]:
    """List the layers that can be measured."""
    own = ["ours, open core", "ours, open", OURS]
    torch_layers = ["nn.MultiheadAttention, weights", "nn.MultiheadAttention"]
    return [*own, *torch_layers, *[RASCHKA] * raschka]


def attention_call(
    name: str,
    *,
    backward: bool,
    batch: int = BATCH,
    heads: int = HEADS,
    length: int = LENGTH,
    head_dim: int = HEAD_DIM,
    raschka: Path | None = None,
) -> Callable[[], object]:
    """Return a function that runs one layer forward, and optionally backward."""
    torch.manual_seed(0)
    width = heads * head_dim
    if name == "ours, open core":
        shape = (3, batch, heads, length, head_dim)
        x = torch.randn(shape, requires_grad=backward)
        parameters: list[Tensor] = []

        def layer(x: Tensor) -> Tensor:
            return attention_with_weights(*x, causal=True)[0]

    else:
        x = torch.randn(batch, length, width, requires_grad=backward)
        module, layer = _layer(name, width, heads, length, raschka)
        # Without gradients, because nn.MultiheadAttention has a fast path for that.
        module.train(backward)
        parameters = list(module.parameters())

    with torch.no_grad():
        gradient = torch.ones_like(layer(x)) if backward else None

    def call() -> object:
        if not backward:
            with torch.no_grad():
                return layer(x)
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        return layer(x).backward(gradient)

    return call


def _layer(
    name: str, width: int, heads: int, length: int, raschka: Path | None
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    if name.startswith("ours"):
        ours = MultiHeadAttention(d_model=width, num_heads=heads, fused=name == OURS)
        return ours, lambda x: ours(x, causal=True)
    if name == RASCHKA:
        assert raschka is not None
        # Imported here, so that measuring the others needs no checkout.
        from benchmarks.peers import Raschka

        theirs = Raschka(raschka).attention(width, heads)
        return theirs, theirs
    # nn.MultiheadAttention needs an explicit mask, with True = may not attend.
    module = nn.MultiheadAttention(width, heads, batch_first=True)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = name.endswith("weights")

    def layer(x: Tensor) -> Tensor:
        return module(
            x, x, x, attn_mask=mask, is_causal=not weights, need_weights=weights
        )[0]

    return module, layer


def measure_attention(*, raschka: Path | None = None, quick: bool = False) -> dict:
    """Time all layers in turns, and measure the memory of each in its own process."""
    size = {"length": 256} if quick else {}
    listed = names(raschka=raschka is not None)
    report: dict = {
        "size": {
            "batch": BATCH,
            "heads": HEADS,
            "length": size.get("length", LENGTH),
            "head_dim": HEAD_DIM,
        },
        "memory": "resident set at its peak (VmHWM) above that before the call, "
        "after a call on 64 positions, each layer in a process of its own",
        "layers": {name: {} for name in listed},
    }
    for backward in (False, True):
        key = "forward_and_backward" if backward else "forward"
        calls = {
            name: attention_call(name, backward=backward, raschka=raschka, **size)
            for name in listed
        }
        times = in_turns(calls, rounds=2 if quick else 7, calls=1, warm_up=1)
        for name, taken in times.items():
            report["layers"][name][key] = taken.to_json()
            bytes_used = _in_a_process(name, backward, raschka=raschka, **size)
            report["layers"][name][f"{key}_peak_mib"] = _mib(bytes_used)
        report[f"ratios_{key}"] = {
            name: round(ratio(taken.median, times[OURS].median), 3)
            for name, taken in times.items()
            if name != OURS
        }
    report["memory_against_length"] = _memory_against_length(quick=quick)
    return report


def _memory_against_length(*, quick: bool) -> dict:
    """Measure how the memory of our fused layer grows, up to 16k positions."""
    lengths = [512, 1024, 2048] if quick else [1024, 2048, 4096, 8192, 16384]
    used = [
        _in_a_process(OURS, True, batch=1, heads=8, head_dim=16, length=length)
        for length in lengths
    ]
    return {
        "layer": {"batch": 1, "heads": 8, "head_dim": 16},
        "lengths": lengths,
        "peak_mib": [_mib(each) for each in used],
        "slope": round(slope(lengths, used), 3),
    }


def _in_a_process(
    name: str, backward: bool, *, raschka: Path | None = None, **size: int
) -> int:
    """Measure the memory of one layer in a fresh process."""
    order = {"name": name, "backward": backward, "size": size}
    order |= {"raschka": raschka and str(raschka), "threads": torch.get_num_threads()}
    child = [sys.executable, "-m", "benchmarks.attention_layer", json.dumps(order)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(child, cwd=root, capture_output=True, text=True, check=True)
    return int(done.stdout)


def _mib(used: int) -> float:
    return round(used / 2**20, 1)


def _child(order: Sequence[str]) -> None:
    given = json.loads(order[0])
    torch.set_num_threads(given["threads"])
    raschka = given["raschka"] and Path(given["raschka"])
    fixed = {"backward": given["backward"], "raschka": raschka}
    # Memory that PyTorch allocates at its first call does not belong to the layer.
    attention_call(given["name"], **fixed, **given["size"] | {"length": 64})()
    call = attention_call(given["name"], **fixed, **given["size"])
    print(peak_memory(call))


if __name__ == "__main__":
    _child(sys.argv[1:])
