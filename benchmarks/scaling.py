"""Measure how time and memory of attention grow with the number of positions.

One sequence, 4 heads of 64 features, forward pass without gradients. Every key is
allowed, because a (T, T) mask would be quadratic by itself. Every path and length has
its own process, so that no memory is reused unnoticed.
"""

import time
import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.measuring import (
    Times,
    answer_order,
    in_a_process,
    mib,
    peak_memory,
    slope,
)
from benchmarks.run import Results, Run
from tested_transformer import attention_with_weights

__all__ = ["PATHS", "attend", "error_of", "inputs", "measure", "summary"]

HEADS, HEAD_DIM = 4, 64
LENGTHS, QUICK_LENGTHS = (1024, 2048, 4096, 8192), (128, 256)
# Beyond 4,096 positions a table of scores takes at least a gigabyte. Each length is
# compiled separately, and two are enough to see that this is quadratic.
ONLY_SOME = {"SDPA, flash": LENGTHS, "FlexAttention, compiled": (1024, 4096)}


def _open(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
    return lambda: attention_with_weights(q, k, v)


def _sdpa(backend: SDPBackend) -> Callable[..., Callable[[], object]]:
    def make(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
        def call() -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v)

        return call

    return make


def _module(*, need_weights: bool, fast: bool) -> Callable[..., Callable[[], object]]:
    def make(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
        torch.backends.mha.set_fastpath_enabled(fast)
        module = nn.MultiheadAttention(HEADS * HEAD_DIM, HEADS, batch_first=True).eval()
        x = q.transpose(1, 2).flatten(start_dim=2)
        return lambda: module(x, x, x, need_weights=need_weights)

    return make


def _flex(*, compiled: bool, blocks: bool) -> Callable[..., Callable[[], object]]:
    def make(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
        run = torch.compile(flex_attention, dynamic=False) if compiled else _quiet_flex
        mask = None
        if blocks:
            size = q.shape[-2], k.shape[-2]
            mask = create_block_mask(_everything, None, None, *size, device=q.device)
        return lambda: run(q, k, v, block_mask=mask)

    return make


def _quiet_flex(*tensors: Tensor, block_mask: object) -> Tensor:
    # It warns that it is not compiled, which is what is measured here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return flex_attention(*tensors, block_mask=block_mask)


def _everything(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key >= 0


PATHS: dict[str, Callable[..., Callable[[], object]]] = {
    "open": _open,
    "SDPA, math": _sdpa(SDPBackend.MATH),
    "SDPA, flash": _sdpa(SDPBackend.FLASH_ATTENTION),
    "nn.MultiheadAttention, weights": _module(need_weights=True, fast=True),
    "nn.MultiheadAttention": _module(need_weights=False, fast=True),
    "nn.MultiheadAttention, fast path off": _module(need_weights=False, fast=False),
    "FlexAttention": _flex(compiled=False, blocks=False),
    "FlexAttention, compiled": _flex(compiled=True, blocks=False),
    "FlexAttention, compiled, in blocks": _flex(compiled=True, blocks=True),
}


def inputs(length: int) -> Tensor:
    """Return random queries, keys and values of one sequence, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 1, HEADS, length, HEAD_DIM, generator=generator)


def attend(path: str, length: int) -> Callable[[], object]:
    """Return a function that runs one path forward on ``length`` positions."""
    torch.manual_seed(0)
    call = PATHS[path](*inputs(length))

    def without_gradients() -> object:
        with torch.no_grad():
            return call()

    return without_gradients


def error_of(path: str, length: int, output: object) -> float | None:
    """Compare with the open attention in double precision, on the first 64 queries.

    Args:
        path: The name of the path.
        length: How many positions it read.
        output: The output of the path.

    Returns:
        The largest difference, or ``None`` for a layer with projections of its own.
    """
    if not isinstance(output, Tensor | tuple) or path.startswith("nn."):
        return None
    q, k, v = inputs(length).double()
    exact, _ = attention_with_weights(q[..., :64, :], k, v)
    first = output[0] if isinstance(output, tuple) else output
    return (first[..., :64, :] - exact).abs().max().item()


def measure(run: Run) -> Results:
    """Measure every path at every length, and fit how both grow."""
    cells: dict[str, list[dict]] = {path: [] for path in PATHS}
    for length in QUICK_LENGTHS if run.quick else LENGTHS:
        for path, measured in cells.items():
            if length in ONLY_SOME.get(path, LENGTHS[:3]) or run.quick:
                order = {"path": path, "length": length, "enough": 0.8}
                order |= {"enough": 0.1} if run.quick else {}
                # A kernel that was compiled before must not be found again.
                alone = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
                measured.append(in_a_process("scaling", order, **alone))
    return {
        "size": {"batch": 1, "heads": HEADS, "head_dim": HEAD_DIM, "dtype": "float32"},
        "memory": "resident set at its peak (VmHWM) above that before the call, after "
        "a first call of the same path; each path and length in a process of its own",
        "paths": {path: summary(measured) for path, measured in cells.items()},
        "error": "largest difference from the open attention in double precision",
    }


def summary(cells: Sequence[dict]) -> dict:
    """Collect the measurements of one path, and fit how time and memory grow."""
    lengths = [cell["length"] for cell in cells]
    times = [cell["time"]["median_ms"] for cell in cells]
    # Memory below one page is measured as 0, which has no logarithm.
    used = [max(cell["peak_bytes"], 4096) for cell in cells]
    return {
        "lengths": lengths,
        "milliseconds": times,
        "calls": [cell["time"]["count"] for cell in cells],
        "peak_mib": [mib(used_here, 2) for used_here in used],
        "largest_error": [cell["error"] for cell in cells],
        "first_call_s": [cell["first_call_s"] for cell in cells],
        "slope_of_time": round(slope(lengths, times), 2),
        "slope_of_memory": round(slope(lengths, used), 2),
    }


def _cell(path: str, length: int, enough: float) -> dict:
    """Measure one path at one length, in calls that together take enough seconds."""
    # PyTorch's allocations at its first call do not belong to a path, except those of
    # compiling, which each length needs.
    compiled = "compiled" in path
    if not compiled:
        attend(path, 64)()
    call = attend(path, length)
    start = time.perf_counter()
    if compiled:
        call()
    first = time.perf_counter() - start
    outputs: list[object] = []
    peak = peak_memory(lambda: outputs.append(call()))
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < enough and len(taken) < 50):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return {
        "length": length,
        "first_call_s": round(first, 1),
        "peak_bytes": peak,
        "time": Times.of(taken).to_json(),
        "error": error_of(path, length, outputs[0]),
    }


if __name__ == "__main__":
    answer_order(_cell)
