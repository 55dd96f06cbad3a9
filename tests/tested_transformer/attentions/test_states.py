"""Tokens taken back from a state, as if they had never been read."""

import random

import pytest
import torch

from tested_transformer.attentions import DeltaAttention, LinearAttention, StateLayer

B, T, D, H, SLACK = 2, 60, 12, 3, 5
SIZES = {"d_model": D, "num_heads": H, "dtype": torch.float64}
LAYERS = {
    "linear": LinearAttention(**SIZES),
    "gated linear": LinearAttention(**SIZES, gated=True),
    "delta": DeltaAttention(**SIZES),
    "gates by feature": DeltaAttention(**SIZES, gated=True, by_feature=True),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
@pytest.mark.parametrize("seed", [1, 2, 3])
@torch.no_grad()
def test_drafts_of_any_lengths_are_taken_back(layer: StateLayer, seed: int) -> None:
    draw = random.Random(seed)
    cache, text = layer.new_cache(B, T), torch.rand(B, 0, D).double()
    cache.slack = SLACK
    longest, a_write = 0, B * H * (3 * D // H + 1) * 8
    most = 2 * cache.nbytes + 2 * SLACK * a_write
    for _ in range(40):
        new = torch.rand(B, draw.randint(1, SLACK), D).double()
        text = torch.cat([text, new], dim=1)
        expected = layer(text)[:, -new.shape[1] :]
        torch.testing.assert_close(layer(new, cache=cache), expected)
        assert cache.nbytes <= most
        longest = max(longest, cache.length)
        assert cache.earliest <= max(0, longest - SLACK)
        length = draw.randint(max(1, cache.earliest), cache.length)
        cache.rewind(length)
        text = text[:, :length]
        assert cache.length == length


def test_without_slack_and_after_a_prompt_nothing_is_kept() -> None:
    layer = LAYERS["gates by feature"]
    cache = layer.new_cache(B, T)
    bare = cache.nbytes
    for slack, pieces in ((0, (1, 1, 3)), (SLACK, (SLACK + 1, 2, SLACK + 1))):
        cache.reset()
        cache.slack = slack
        for length in pieces:
            layer(torch.rand(B, length, D).double(), cache=cache)
        assert (cache.earliest, cache.nbytes) == (cache.length, bare)
        with pytest.raises(ValueError, match="cannot go back to 1: a StateCache can"):
            cache.rewind(1)
