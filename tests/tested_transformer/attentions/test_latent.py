"""Latent attention: naive = absorbed = DeepSeek's, with a cache or without."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor, nn

from tested_transformer.attentions import LatentAttention
from tested_transformer.masks import padding_mask, sliding_window_mask
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


def made(**settings: Any) -> LatentAttention:
    layer = LatentAttention(**(SIZES | settings))
    for parameter in layer.parameters():  # norms too: their weights begin as ones
        nn.init.normal_(parameter, std=0.7)
    return layer


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def in_theirs(
    ours: LatentAttention, names: dict[str, str]
) -> Iterator[tuple[nn.Parameter, str]]:
    """Give each parameter of ours, and the name that it has in theirs."""
    for name, parameter in ours.named_parameters():
        module, _, kind = name.rpartition(".")
        yield parameter, f"{names[module]}.{kind}"


def deepseeks(ours: LatentAttention, **changes: Any) -> tuple[Any, dict[str, str]]:
    """Give the attention of ``transformers``' DeepSeek-V3 the same weights."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
        DeepseekV3Attention,
    )

    deep = isinstance(ours.q_proj, nn.Sequential)
    config = DeepseekV3Config(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=D_CQ if deep else None,
        kv_lora_rank=D_C,
        qk_rope_head_dim=R,
        qk_nope_head_dim=D_K,
        v_head_dim=D_V,
        attn_implementation="sdpa",
        **changes,
    )
    theirs = DeepseekV3Attention(config, layer_idx=0).double()
    names = {
        "kv_down": "kv_a_proj_with_mqa",
        "kv_norm": "kv_a_layernorm",
        "kv_up": "kv_b_proj",
        "o_proj": "o_proj",
        "q_proj": "q_proj",
        "q_proj.0": "q_a_proj",
        "q_proj.1": "q_a_layernorm",
        "q_proj.2": "q_b_proj",
    }
    theirs.load_state_dict({name: p.detach() for p, name in in_theirs(ours, names)})
    # Their norm computes in float32, which would hide all but the coarsest errors.
    for name, width in (("q_a_layernorm", D_CQ), ("kv_a_layernorm", D_C)):
        if getattr(theirs, name, None) is not None:
            norm = nn.RMSNorm(width, eps=1e-6, dtype=torch.float64)
            norm.load_state_dict(getattr(theirs, name).state_dict())
            setattr(theirs, name, norm)
    return theirs, names


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
    ours = made(
        query_latent_dim=D_CQ if deep else None,
        bias=bias,
        pairing=pairing,
        absorbed=absorbed,
    )
    theirs, names = deepseeks(
        ours, attention_bias=bias, rope_interleave=pairing == "neighbors"
    )
    x = rand(B, T, D).requires_grad_()
    cos, sin = (torch.cat([half, half], dim=-1)[None].double() for half in ROTARY)
    future = torch.full((T, T), float("-inf"), dtype=torch.float64).triu(1)
    wanted, _ = theirs(x, (cos, sin), future[None, None])
    output = ours(x, causal=True, rotary=ROTARY)
    named = dict(theirs.named_parameters())
    mine, names_of_mine = zip(*in_theirs(ours, names), strict=True)
    assert {*names_of_mine} == named.keys()
    other = [named[name] for name in names_of_mine]
    assert_alike(output, wanted, [x, *mine], [x, *other], close=1e-11)
    # Their weights, which they compute in float32, are given by their open form alone.
    theirs.config._attn_implementation = "eager"
    _, their_weights = theirs(x, (cos, sin), future[None, None])
    _, weights = ours(x, causal=True, rotary=ROTARY, return_weights=True)
    torch.testing.assert_close(weights, their_weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "causal", "window", "padding", "bias"])
def test_absorbed_is_naive_in_outputs_and_gradients(kind: str) -> None:
    how: dict[str, dict[str, Any]] = {
        "all": {},
        "causal": {"causal": True, "rotary": ROTARY},
        "window": {"window": 3, "rotary": ROTARY},
        "padding": {"mask": padding_mask(torch.tensor([T, 4])), "rotary": ROTARY},
        "bias": {"score_bias": rand(1, H, T, T), "causal": True},
    }
    layer = made(query_latent_dim=D_CQ)
    x = rand(B, T, D).requires_grad_()
    outputs: list[Tensor] = []
    for layer.absorbed, layer.fused in ((False, True), (True, True), (True, False)):
        outputs.append(layer(x, **how[kind]))
    for absorbed in outputs[1:]:
        assert_alike(absorbed, outputs[0], [x, *layer.parameters()], close=1e-10)


def test_one_head_by_hand() -> None:
    """Two tokens, everything one wide but for the rotary part, no rotation."""
    layer = LatentAttention(
        d_model=1, num_heads=1, head_dim=1, rotary_dim=2, latent_dim=1
    )
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.tensor([[2.0], [0], [0]]))
        layer.kv_down.weight.copy_(torch.tensor([[5.0], [0], [0]]))
        layer.kv_up.weight.copy_(torch.tensor([[3.0], [7.0]]))
        layer.o_proj.weight.fill_(1)
    # The norm of a single number is its sign: latents 1 and -1, keys 3 and -3, values
    # 7 and -7. The query of the first token is 2: scores 6 and -6 over root 3.
    gap = 12 / 3**0.5
    share = 1 / (1 + torch.tensor(-gap).exp())
    output = layer(torch.tensor([[[1.0], [-1.0]]]))
    torch.testing.assert_close(output[0, 0, 0], 7 * share - 7 * (1 - share))


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "naive", "absorbed"),
    # By hand: 13 * (5 + 6) = 143 for each token made; 15 a pair, or 13 + 4 + 13 = 30.
    [(1, 7, 3 * (7 * 143 + 7 * 15), 3 * (143 + 7 * 30)), (7, 7, 5208, 7413)],
)
def test_the_cheaper_form_is_chosen(
    num_queries: int, num_keys: int, naive: int, absorbed: int
) -> None:
    layer = made()
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
            made(**{name: 0})
    with pytest.raises(ValueError, match=r"^rotary_dim=3 must be even$"):
        made(rotary_dim=3)
    with pytest.raises(ValueError, match=r"^query_latent_dim=0 must be positive$"):
        made(query_latent_dim=0)
    with pytest.raises(ValueError, match=r"^pairing='pairs' must be one of halves, "):
        made(pairing="pairs")
    with pytest.raises(ValueError, match=r"^dropout=2 must lie between 0 and 1$"):
        made(dropout=2)
    layer = made()
    message = r"^x must be \(batch, length, 11\); it is \(2, 7, 12\)$"
    with pytest.raises(ValueError, match=message):
        layer(rand(B, T, D + 1))
    message = r"^rotary must be a table for rotary_dim=4; it is for 6$"
    with pytest.raises(ValueError, match=message):
        layer(rand(B, T, D), rotary=rotary_table(torch.arange(T), 6))


def test_it_shows_what_it_is_made_of() -> None:
    assert "num_heads=3, head_dim=5, rotary_dim=4, value_dim=6" in repr(made())


def test_its_own_cache_is_as_wide_as_an_entry() -> None:
    cache = made().new_cache(B, T)
    assert cache.keys.shape == (B, 1, T, D_C + R)
    assert cache.values.shape == (B, 1, T, 0)
    assert cache.keys.dtype == torch.float64


def test_a_window_is_the_mask_of_a_window() -> None:
    """In both forms: they could forget it together."""
    x, mask = rand(2, T, D), sliding_window_mask(T, window=3)
    for absorbed in (True, False):
        layer = made(absorbed=absorbed)
        inside = layer(x, causal=True, window=3, rotary=ROTARY)
        torch.testing.assert_close(inside, layer(x, mask=mask, rotary=ROTARY))
        assert not torch.allclose(inside, layer(x, causal=True, rotary=ROTARY))
