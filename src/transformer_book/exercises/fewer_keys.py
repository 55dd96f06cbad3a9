"""Graders of *Fewer keys*."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["grade_batch_that_fits", "grade_share"]


def grade_share(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Grade a function that gives each head of queries the keys of its group.

    Args:
        answer: A function of the keys, ``(B, H_kv, S, d_k)``, and the number of heads.
    """
    sizes = (2, 6, 2, 5, 3), (1, 4, 4, 2, 2), (2, 3, 1, 4, 5)
    for batch, heads, kv_heads, length, width in sizes:
        shape = batch, kv_heads, length, width
        k = torch.arange(float(math.prod(shape))).reshape(shape)
        got = answer(k, heads)
        assert got.shape[1] != heads * kv_heads or kv_heads == 1, (
            f"it returns {heads * kv_heads} heads for {heads}: too many copies of each"
        )
        assert got.shape == (batch, heads, length, width), (
            f"the shape is {tuple(got.shape)}"
        )
        in_turn = torch.equal(got, k.repeat(1, heads // kv_heads, 1, 1))
        for head in range(heads):
            right = torch.equal(got[:, head], k[:, head * kv_heads // heads])
            assert right or not in_turn, (
                "the shape is right, but the heads are dealt out in turn, 0, 1, 0, 1"
            )
            assert right, f"head {head} has keys of several heads, or of another one"
    return "right"


def grade_batch_that_fits(answer: Callable[[GPTConfig, int], int]) -> str:
    """Grade how many sequences fit into some memory, at two bytes per number.

    Args:
        answer: A function of a configuration and a number of bytes.
    """
    for num_kv_heads in (2, None):
        config = GPTConfig(
            vocab_size=7,
            max_seq_len=11,
            d_model=24,
            num_heads=6,
            num_layers=3,
            num_kv_heads=num_kv_heads,
        )
        needed = GPT(config).bfloat16().new_cache(5).nbytes
        one = needed // 5
        for memory, fits in ((needed, 5), (needed - 1, 4), (0, 0)):
            try:
                got = answer(config, memory)
            except TypeError as error:
                hint = "num_kv_heads is None if each head has keys of its own"
                raise AssertionError(f"{error}: {hint}") from error
            if got == fits:
                continue
            assert got != memory // (one // 2), "keys *and* values: each takes as much"
            assert got != memory // (one * 3), "not every head of queries has its own"
            assert got != memory // (one // 3), "each layer keeps its own"
            raise AssertionError(
                f"it says {got} sequences in {memory} bytes, not {fits}"
            )
    return "right"
