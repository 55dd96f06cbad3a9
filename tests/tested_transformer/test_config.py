"""Settings of a GPT: what fits, what does not, and as JSON."""

import math
import re
from dataclasses import replace

import pytest

from tested_transformer.gpt import GPTConfig
from tested_transformer.rotary_scaling import yarn_rates

V, LONGEST, H, D_K, L = 13, 17, 6, 4, 3
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=H * D_K, num_heads=H, num_layers=L
)
ROTARY, SINES = {"positions": "rotary"}, {"positions": "sinusoidal"}
PRUNED = GPTConfig(vocab_size=13, max_seq_len=7, d_model=24, num_heads=4, num_layers=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0 must be positive"),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"d_ff": 0}, "d_ff=0 must be positive"),
        ({"d_model": 24.0}, "d_model=24.0 must be an int"),
        ({"head_dim": 2.0}, "head_dim=2.0 must be an int"),
        ({"num_kv_heads": 4}, "num_kv_heads=4 must divide num_heads=6"),
        ({"positions": "relative"}, "positions='relative' must be one of learned"),
        ({"norm": "batch"}, "norm='batch' must be one of layer, rms"),
        ({"norm_place": "inside"}, "norm_place='inside' must be one of before, after"),
        ({"activation": "tanh"}, "activation='tanh' must be one of gelu, gelu_tanh"),
        ({"dropout": -0.1}, "dropout=-0.1 must lie between 0 and 1"),
        ({"rotary_base": math.nan}, "rotary_base=nan must be positive and finite"),
        ({"rotary_attention_factor": 0.0}, "rotary_attention_factor=0.0 must be"),
        ({"norm_eps": 0.0}, "norm_eps=0.0 must be positive and finite"),
        ({"embedding_scale": -1.0}, "embedding_scale=-1.0 must be positive and finite"),
        ({"logit_cap": math.inf}, "logit_cap=inf must be positive and finite"),
        (ROTARY | {"local_rotary_base": 0}, "local_rotary_base=0 must be positive and"),
        ({"local_rotary_base": 5.0}, "positions='learned' must be 'rotary' for"),
        (ROTARY | {"rotary_layers": (True,)}, "rotary_layers has 1 layers; num_layers"),
        ({"rotary_layers": (True, False, True)}, "positions='learned' must be"),
        (ROTARY | {"rotary_rates": (1.0,)}, "1 rotary_rates must be 2"),
        (ROTARY | {"rotary_rates": (1.0, math.inf)}, "rotary_rates=(1.0, inf) must be"),
        ({"rotary_rates": (1.0, 1.0)}, "positions='learned' must be 'rotary' for rota"),
        (ROTARY | {"d_model": 18}, "head_dim=3 must be even for rotary"),
        (
            SINES | {"d_model": 15, "num_heads": 3},
            "d_model=15 must be even for sin",
        ),
        ({"windows": (3, None)}, "windows has 2 layers; num_layers=3"),
        ({"windows": (3, None, -1)}, "windows=(3, None, -1) must be a positive int"),
        ({"windows": 2.5}, "windows=2.5 must be a positive int, or"),
        ({"num_experts": -1}, "num_experts=-1 must not be negative"),
        ({"num_experts": 2, "experts_per_token": 3}, "experts_per_token=3 must lie"),
        ({"qk_norm": "layer"}, "qk_norm='layer' must be "),
        ({"qk_norm": 1}, "qk_norm=1 must be "),
        ({"router_bias": 2}, "router_bias=2 must be "),
        ({"qkv_bias": "no"}, "qkv_bias='no' must be "),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_bad_settings_are_named(change, message: str):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        replace(SMALL, **change)


@pytest.mark.usefixtures("as_a_caller")
def test_heads_may_be_given_in_lists():
    config = replace(SMALL, kept_heads=[[0], [1, 2], [3]])
    assert config.kept_heads == ((0,), (1, 2), (3,))
    assert hash(config) == hash(replace(SMALL, kept_heads=((0,), (1, 2), (3,))))


@pytest.mark.usefixtures("as_a_caller")
def test_rates_from_a_tensor_are_kept_as_numbers():
    rates = yarn_rates(D_K, factor=2.0, trained_length=64)
    config = replace(SMALL, positions="rotary", rotary_rates=rates)
    assert config.rotary_rates == tuple(rates.tolist())


def test_groups_that_share_keys_are_kept_whole():
    config = replace(PRUNED, kept_heads=((2, 3), (0, 1, 2, 3)), num_kv_heads=2)
    assert [config.heads_of(layer) for layer in range(2)] == [(2, 1), (4, 2)]
    assert replace(PRUNED, num_kv_heads=2).heads_of(1) == (4, 2)


@pytest.mark.parametrize(
    ("kept", "change", "message"),
    [
        (((0,),), {}, "kept_heads has 1 layers; num_layers=2"),
        (((0,), (1, 1)), {}, "kept_heads[1]=(1, 1) must be one or more of the heads"),
        (((2, 0), (1,)), {}, "kept_heads[0]=(2, 0) must be one or more of the heads"),
        (((0, 1), (1, 2)), {"num_kv_heads": 2}, "kept_heads[1]=(1, 2) must be whole"),
    ],
)
def test_heads_that_cannot_be_kept_are_named(
    kept: tuple, change: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        replace(PRUNED, kept_heads=kept, **change)
