"""Layers with a state: what they compute, and tokens that are taken back from it."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tested_transformer.attentions import (
    DeltaAttention,
    LinearAttention,
    StateLayer,
    recurrent_delta_rule,
    recurrent_linear_attention,
)
from tested_transformer.cache import DenseCache

B, T, D, H, SLACK = 2, 60, 12, 3, 5
SIZES = {"d_model": D, "num_heads": H, "dtype": torch.float64}
KINDS: dict[str, tuple[type[StateLayer], dict[str, Any]]] = {
    "linear": (LinearAttention, {}),
    "gated linear": (LinearAttention, {"gated": True}),
    "delta": (DeltaAttention, {}),
    "gated delta": (DeltaAttention, {"gated": True}),
    "gates by feature": (DeltaAttention, {"gated": True, "by_feature": True}),
}
LAYERS = {name: kind(**SIZES, **gates) for name, (kind, gates) in KINDS.items()}
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=[*LAYERS])


@pytest.mark.parametrize(("kind", "gates"), KINDS.values(), ids=[*KINDS])
def test_heads_follow_their_rule(kind: type[StateLayer], gates: dict[str, Any]) -> None:
    """With queries and keys of length 1, and outputs that are normed."""
    sizes = {"d_model": 7, "num_heads": 3, "head_dim": 5, "dtype": torch.float64}
    layer, x = kind(**sizes, **gates, chunk_size=4), torch.rand(B, 11, 7).double()

    def heads_of(projection: str) -> Tensor:
        features = layer.get_submodule(projection)(x)
        return features.unflatten(-1, (3, -1)).transpose(1, 2)

    q, k, v = (heads_of(f"{letter}_proj") for letter in "qkv")
    q, k = (tensor / tensor.norm(dim=-1, keepdim=True) for tensor in (q, k))
    log_decay = heads_of("gate_proj").sigmoid().log() / 16 if gates else None
    if kind is DeltaAttention:
        beta = heads_of("beta_proj").sigmoid().squeeze(-1)
        heads, _ = recurrent_delta_rule(q, k, v, beta, log_decay=log_decay)
    else:
        heads, _ = recurrent_linear_attention(q, k, v, log_decay=log_decay)
    heads = heads / (heads.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    expected = layer.o_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x), expected)


@each_layer
def test_a_layer_goes_on_from_its_state(layer: StateLayer) -> None:
    x = torch.rand(B, T, D).double()
    first, state = layer(x[:, :5], return_state=True)
    second = layer(x[:, 5:], state=state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), layer(x))
    assert state.shape == (B, H, D // H, D // H)
    with pytest.raises(ValueError, match="cache must come from this layer's new_cache"):
        layer(x, cache=DenseCache(*torch.zeros(2, B, 2, T, 4)))
    with pytest.raises(ValueError, match="state and cache are both given"):
        layer(x, cache=layer.new_cache(B, T), state=state)


@each_layer
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
