"""Latent attention: naive = absorbed = DeepSeek's, with a cache or without."""

from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attentions import LatentAttention
from tested_transformer.masks import padding_mask
from tested_transformer.positions import rotary_table

# Pairwise different: batch, heads, positions, widths of the sequence, of a head's
# still and turning part, of the latent, of a value and of the queries' latent.
B, H, T, D, D_K, R, D_C, D_V, D_CQ = 2, 3, 7, 11, 5, 4, 13, 6, 9
SIZES: dict[str, Any] = {
    "d_model": D,
    "num_heads": H,
    "head_dim": D_K,
    "rotary_dim": R,
    "latent_dim": D_C,
    "value_dim": D_V,
    "dtype": torch.float64,
}
ROTARY = rotary_table(torch.arange(T), R)


def make_layer(**settings: Any) -> LatentAttention:
    return with_large_weights(LatentAttention(**(SIZES | settings)), 0.7)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def by_deepseeks_names(ours: LatentAttention) -> dict[str, Tensor]:
    """Return our parameters by the names that DeepSeek-V3's attention has for them."""
    names = {"kv_down": "kv_a_proj_with_mqa", "kv_norm": "kv_a_layernorm"}
    names |= {"kv_up": "kv_b_proj", "o_proj": "o_proj", "q_proj": "q_proj"}
    names |= {"q_proj.0": "q_a_proj", "q_proj.1": "q_a_layernorm"}
    names |= {"q_proj.2": "q_b_proj"}
    split = [(n.rpartition("."), p) for n, p in ours.named_parameters()]
    return {f"{names[module]}.{kind}": p for (module, _, kind), p in split}


@pytest.mark.parametrize(
    ("deep", "bias", "pairing", "absorbed"),
    [
        (True, True, "neighbors", True),
        (True, False, "halves", False),
        (False, True, "neighbors", False),
    ],
)
def test_it_is_deepseeks_with_the_same_weights(
    deep: bool, bias: bool, pairing: str, absorbed: bool
) -> None:
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
        DeepseekV3Attention,
    )

    width = D_CQ if deep else None
    ours = make_layer(
        query_latent_dim=width, bias=bias, pairing=pairing, absorbed=absorbed
    )
    config = DeepseekV3Config(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=width,
        kv_lora_rank=D_C,
        qk_rope_head_dim=R,
        qk_nope_head_dim=D_K,
        v_head_dim=D_V,
        attention_bias=bias,
        rope_interleave=pairing == "neighbors",
        attn_implementation="sdpa",
    )
    theirs = DeepseekV3Attention(config, layer_idx=0).double()
    # Their norm computes in float32, which would hide all but the coarsest errors.
    for name, size in (("q_a_layernorm", D_CQ), ("kv_a_layernorm", D_C)):
        if getattr(theirs, name, None) is not None:
            setattr(theirs, name, nn.RMSNorm(size, eps=1e-6))
    named = by_deepseeks_names(ours)
    assert named.keys() == dict(theirs.named_parameters()).keys()
    x = rand(B, T, D).requires_grad_()
    cos, sin = (torch.cat([half, half], dim=-1)[None].double() for half in ROTARY)
    future = torch.full((T, T), float("-inf"), dtype=torch.float64).triu(1)
    call = x, (cos, sin), future[None, None]
    expected, _ = torch.func.functional_call(theirs, named, call)
    output = ours(x, causal=True, rotary=ROTARY)
    assert_alike(output, expected, [x, *ours.parameters()], close=1e-11)
    # Their weights, which they compute in float32, are given by their open form alone.
    theirs.config._attn_implementation = "eager"
    _, their_weights = torch.func.functional_call(theirs, named, call)
    _, weights = ours(x, causal=True, rotary=ROTARY, return_weights=True)
    torch.testing.assert_close(weights, their_weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "causal", "window", "padding", "bias"])
def test_absorbed_is_naive_in_outputs_and_gradients(kind: str) -> None:
    how: dict[str, dict[str, Any]] = {
        "all": {},
        "causal": {"causal": True, "rotary": ROTARY},
        "window": {"window": 3, "causal": True, "rotary": ROTARY},
        "padding": {"mask": padding_mask(torch.tensor([T, 4])), "rotary": ROTARY},
        "bias": {"score_bias": rand(1, H, T, T), "causal": True},
    }
    layer = make_layer(query_latent_dim=D_CQ)
    x = rand(B, T, D).requires_grad_()
    outputs: list[Tensor] = []
    for layer.absorbed, layer.fused in ((False, True), (True, True), (True, False)):
        outputs.append(layer(x, **how[kind]))
    for absorbed in outputs[1:]:
        assert_alike(absorbed, outputs[0], [x, *layer.parameters()], close=1e-10)


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "naive", "absorbed"),
    # By hand: 13 * (5 + 6) = 143 for each token made; 15 a pair, or 13 + 4 + 13 = 30.
    [(1, 7, 3 * (7 * 143 + 7 * 15), 3 * (143 + 7 * 30)), (7, 7, 5208, 7413)],
)
def test_the_cheaper_form_is_chosen(
    num_queries: int, num_keys: int, naive: int, absorbed: int
) -> None:
    layer = make_layer()
    assert layer.multiplications(num_queries, num_keys) == (naive, absorbed)
    called: list[str] = []
    for form in ("naive", "absorbed"):
        run = getattr(layer, f"_attend_{form}")
        setattr(
            layer,
            f"_attend_{form}",
            lambda *a, f=form, r=run: called.append(f) or r(*a),
        )
    cache = layer.new_cache(B, T)
    cache.append(
        rand(B, 1, num_keys - num_queries, D_C + R),
        rand(B, 1, num_keys - num_queries, 0),
    )
    layer(rand(B, num_queries, D), cache=cache)
    assert called == ["absorbed" if absorbed < naive else "naive"]


def test_what_does_not_fit_is_refused(as_a_caller: None) -> None:
    for name in [*SIZES][:-1]:
        with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
            make_layer(**{name: 0})
    for settings, message in (
        ({"rotary_dim": 3}, r"^rotary_dim=3 must be even$"),
        ({"query_latent_dim": 0}, r"^query_latent_dim=0 must be positive$"),
        ({"pairing": "pairs"}, r"^pairing='pairs' must be one of halves, "),
        ({"dropout": 2}, r"^dropout=2 must lie between 0 and 1$"),
    ):
        with pytest.raises(ValueError, match=message):
            make_layer(**settings)
    message = r"^rotary must be a table for rotary_dim=4; it is for 6$"
    with pytest.raises(ValueError, match=message):
        make_layer()(rand(B, T, D), rotary=rotary_table(torch.arange(T), 6))


def test_it_shows_what_it_is_made_of() -> None:
    assert "num_heads=3, head_dim=5, rotary_dim=4, value_dim=6" in repr(make_layer())


def test_its_parameters_are_where_and_as_they_are_asked_to_be() -> None:
    settings = {"query_latent_dim": D_CQ, "device": "meta", "dtype": torch.float16}
    parameters = dict(LatentAttention(**(SIZES | settings)).named_parameters())
    kinds = {(p.device.type, p.dtype) for p in parameters.values()}
    assert kinds == {("meta", torch.float16)}
    assert not any(name.endswith("bias") for name in parameters)


def test_its_own_cache_is_as_wide_as_an_entry() -> None:
    cache = make_layer().new_cache(B, T)
    assert cache.keys.shape == (B, 1, T, D_C + R)
    assert cache.values.shape == (B, 1, T, 0)
    assert cache.keys.dtype == torch.float64
