"""Time chosen blocks: gathered, and through FlexAttention, compiled.

FlexAttention leaves out a tile of 128 queries and 128 keys if none of its queries chose
any of its keys. So two kinds of queries are timed: each with a question of its own, and
128 in a row with the same one.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.learning import seeded
from benchmarks.run import Results, Run
from tested_transformer import fused_attention
from tested_transformer.attentions import (
    attention_in_blocks,
    choose_blocks,
    flex_blocks,
)

__all__ = ["ASKING", "measure"]

HEADS, WIDTH, SIZE, COUNT = 2, 64, 128, 8
ASKING = ("own", "alike")


@torch.no_grad()
def measure(run: Run) -> Results:
    """Time attention to all keys and to chosen blocks, two ways, at each length."""
    lengths = (256,) if run.quick else (1024, 2048, 4096, 8192, 16384, 32768)
    # To try it out, what is not compiled computes the same. Each length is compiled by
    # itself: for any length at once, there is no kernel for a CPU (torch 2.13).
    attend = (
        flex_attention if run.quick else torch.compile(flex_attention, dynamic=False)
    )
    results: dict[str, Any] = {
        "size": {"heads": HEADS, "width": WIDTH, "block size": SIZE, "blocks": COUNT}
    }
    for length in lengths:
        results[str(length)] = _at(length, attend)
        print(length, results[str(length)], flush=True)
    return results


def _at(length: int, attend: Callable[..., Any]) -> dict[str, Any]:
    q, k, v = torch.randn(3, 1, HEADS, length, WIDTH, generator=seeded(length))
    alike = q[:, :, ::SIZE].repeat_interleave(SIZE, dim=2)
    _, seconds = _timed(lambda: fused_attention(q, k, v, causal=True))
    queries_by_kind = zip(ASKING, (q, alike), strict=True)
    rows = {
        asking: _blocks(queries, k, v, attend) for asking, queries in queries_by_kind
    }
    return {"all keys": seconds, **rows}


def _blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attend: Callable[..., Any]
) -> dict[str, float]:
    chosen, choosing = _timed(
        lambda: choose_blocks(q, k, block_size=SIZE, num_chosen=COUNT)
    )
    mask, making = _timed(
        lambda: flex_blocks(chosen, num_keys=k.shape[2], block_size=SIZE)
    )
    gathered, gathering = _timed(
        lambda: attention_in_blocks(q, k, v, chosen, block_size=SIZE)
    )
    attend(q, k, v, block_mask=mask)  # the first time it is compiled
    output, seconds = _timed(lambda: attend(q, k, v, block_mask=mask))
    tiles = int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())
    side = k.shape[2] // SIZE
    return {
        "tiles": round(tiles / (HEADS * side * (side + 1) / 2), 4),
        "choosing": choosing,
        "making the mask": making,
        "gathered": gathering,
        "flex": seconds,
        "gap": float((output - gathered).abs().max()),
    }


def _timed(way: Callable[[], Any], times: int = 4) -> tuple[Any, float]:
    """Return what it returns, and the least processor seconds of a few runs."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.process_time()
        result = way()
        best = min(best, time.process_time() - start)
    return result, round(best, 5)
