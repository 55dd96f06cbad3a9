"""Graders of *The key/value cache*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.cache import KVCache
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["grade_chunk_mask", "grade_forget"]


def grade_chunk_mask(answer: Callable[[int, int], Tensor]) -> str:
    """Grade the mask of new queries on top of old keys.

    Args:
        answer: A function of the numbers of new and of old tokens.
    """
    for new, old in ((3, 4), (1, 6), (5, 0)):
        got = answer(new, old)
        assert got.shape == (new, new + old), f"the shape is {tuple(got.shape)}"
        assert got.dtype == torch.bool, f"it is {got.dtype}, not boolean"
        keys, queries = torch.arange(new + old), torch.arange(new)[:, None]
        assert old == 0 or not torch.equal(got, keys <= queries), (
            "aligned top left: the newest query does not see the newest key"
        )
        itself = got[torch.arange(new), torch.arange(old, old + new)]
        assert itself.all(), "one key too few: a query does not see itself"
        assert new == 1 or not got.all(), "nothing is hidden: a query sees those behind"
        right = keys <= queries + old
        assert torch.equal(got, right), f"{new} new on {old} old: {got.int().tolist()}"
    return "right"


def grade_forget(answer: Callable[[KVCache, int], object]) -> str:
    """Grade a function that takes the last tokens out of a cache.

    Args:
        answer: A function of a cache and of how many tokens to forget.
    """
    generator = torch.Generator().manual_seed(0)
    model = GPT(GPTConfig(vocab_size=13, d_model=24, num_heads=3, num_layers=2)).eval()
    tokens = torch.randint(13, (1, 9), generator=generator)
    with torch.no_grad():
        right = model(tokens)[:, 6:]
        cache = model.new_cache()
        model(tokens[:, :6], cache=cache)
        model(torch.randint(13, (1, 3), generator=generator), cache=cache)
        answer(cache, 3)
        lengths = [layer.length for layer in cache.layers]
        assert len(set(lengths)) == 1, f"the layers hold {lengths} tokens: not as many"
        assert lengths[0] != 3, "3 tokens are left: count says how many go, not stay"
        assert lengths[0] == 6, f"of 9 tokens {lengths[0]} are left, not 6"
        gap = (model(tokens[:, 6:], cache=cache) - right).abs().max().item()
    assert gap < 1e-5, f"what is read next differs by {gap:.2f}: old keys were changed"
    return "right"
