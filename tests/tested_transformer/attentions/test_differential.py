"""Differential attention: open = fused = DiffLlama's, weights copied."""

from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor

from tested_transformer.attentions import Differential
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import rotary_table

B, H, H_KV, T, D, D_K = 2, 12, 6, 7, 24, 4
ROTARY = rotary_table(torch.arange(T), D_K)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make_layer(**settings: Any) -> MultiHeadAttention:
    sizes = {"d_model": D, "num_heads": H, "num_kv_heads": H_KV, "head_dim": D_K}
    settings = sizes | {"core": Differential()} | settings
    return with_large_weights(MultiHeadAttention(**settings).double(), 0.7)


@pytest.mark.parametrize(("layer", "bias"), [(0, True), (3, False)])
def test_it_is_diff_llamas(
    layer: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    ours = make_layer(layer=layer, bias=bias)
    config = DiffLlamaConfig(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H_KV,
        head_dim=D_K,
        attention_bias=bias,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )
    theirs = DiffLlamaAttention(config, layer_idx=layer).double()
    weights = dict(ours.named_parameters())
    for letter in "qk":
        vectors = weights.pop(f"core.share_{letter}")
        weights[f"lambda_{letter}1"], weights[f"lambda_{letter}2"] = vectors
    assert weights.keys() == dict(theirs.named_parameters()).keys()

    x = rand(B, T, D).requires_grad_()
    cos, sin = (torch.cat([half, half], dim=-1)[None].double() for half in ROTARY)
    future = torch.full((T, T), float("-inf"), dtype=torch.float64).triu(1)
    with monkeypatch.context() as patch:  # they compute some steps in float32
        patch.setattr(torch, "float32", torch.float64)
        expected, _ = torch.func.functional_call(
            theirs, weights, (x, (cos, sin), future[None, None])
        )
    fused = ours(x, causal=True, rotary=ROTARY)
    in_the_open, weights = ours(x, causal=True, rotary=ROTARY, return_weights=True)
    assert weights.shape == (B, H // 2, T, T)
    torch.testing.assert_close(
        weights.sum(dim=-1), (1 - ours.core.share()).expand(B, H // 2, T)
    )
    for output in (fused, in_the_open):
        assert_alike(output, expected, [x, *ours.parameters()], close=1e-11)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 3, "num_kv_heads": 3}, "num_heads=3 must be even"),
        ({"num_kv_heads": 3}, "num_kv_heads=3 must be even"),
        ({"num_kv_heads": 5}, "num_kv_heads=5 must divide num_heads=12"),
        ({"layer": -1}, "layer=-1 must not be negative"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_layer(**settings)
