"""Settings of a GPT: what fits, what does not, and as JSON."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.checkpoints.configs import describe_config, read_config
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.rotary_scaling import yarn_rates

V, LONGEST, H, D_K, L = 13, 17, 6, 4, 3
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=H * D_K, num_heads=H, num_layers=L
)
PRUNED = GPTConfig(vocab_size=13, max_seq_len=7, d_model=24, num_heads=4, num_layers=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0 must be positive"),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"num_kv_heads": 4}, "num_kv_heads=4 must divide num_heads=6"),
        ({"positions": "relative"}, "positions='relative' must be one of learned"),
        ({"norm": "batch"}, "norm='batch' must be one of layer, rms"),
        ({"activation": "tanh"}, "activation='tanh' must be one of gelu, gelu_tanh"),
        ({"dropout": -0.1}, "dropout=-0.1 must lie between 0 and 1"),
        ({"d_ff": 0}, "d_ff=0 must be positive"),
        ({"rotary_base": 0.0}, "rotary_base=0.0 must be positive and finite"),
        ({"rotary_base": math.nan}, "rotary_base=nan must be positive and finite"),
        ({"positions": "rotary", "rotary_rates": (1.0,)}, "1 rotary_rates must be 2"),
        (
            {"positions": "rotary", "rotary_rates": (1.0, math.inf)},
            "rotary_rates=(1.0, inf) must be finite",
        ),
        (
            {"positions": "alibi", "rotary_rates": (1.0, 1.0)},
            "positions='alibi' must be 'rotary' for rotary_rates",
        ),
        ({"rotary_attention_factor": 0.0}, "rotary_attention_factor=0.0 must be"),
        ({"windows": (3, None)}, "windows has 2 layers; num_layers=3"),
        ({"windows": (3, None, -1)}, "windows=(3, None, -1) must be a positive int"),
        ({"num_experts": -1}, "num_experts=-1 must not be negative"),
        ({"num_experts": 2, "experts_per_token": 3}, "experts_per_token=3 must lie"),
        ({"positions": "rotary", "d_model": 18}, "head_dim=3 must be even for rotary"),
        (
            {"positions": "sinusoidal", "d_model": 15, "num_heads": 3},
            "d_model=15 must be even for sinusoids",
        ),
        ({"norm_place": "inside"}, "norm_place='inside' must be one of before, after"),
        ({"norm_eps": 0.0}, "norm_eps=0.0 must be positive and finite"),
        ({"embedding_scale": -1.0}, "embedding_scale=-1.0 must be positive and finite"),
        ({"logit_cap": 0.0}, "logit_cap=0.0 must be positive and finite"),
        (
            {"positions": "rotary", "local_rotary_base": math.inf},
            "local_rotary_base=inf must be positive and finite",
        ),
        ({"local_rotary_base": 5.0}, "positions='learned' must be 'rotary' for"),
        (
            {"positions": "rotary", "rotary_layers": (True, False)},
            "rotary_layers has 2 layers; num_layers=3",
        ),
        ({"rotary_layers": (True, False, True)}, "positions='learned' must be"),
    ],
)
def test_bad_settings_are_named(change, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        replace(SMALL, **change)


@pytest.mark.usefixtures("as_a_caller")
def test_a_size_that_is_no_int_is_named():
    with pytest.raises(TypeError, match=r"^d_model=24.0 must be an int$"):
        replace(SMALL, d_model=24.0)
    with pytest.raises(ValueError, match=r"^windows=2.5 must be a positive int, or"):
        replace(SMALL, windows=2.5)


def test_settings_come_back_from_json_old_ones_too():
    config = replace(SMALL, windows=(2, None, 5), kept_heads=((0,), (1, 2), (3,)))
    slowed = replace(SMALL, positions="rotary", rotary_rates=(0.1, 1 / 3))
    text = json.dumps(describe_config(slowed))
    again = read_config(json.loads(text), Path("config.json"))
    assert again == slowed
    values = json.loads(json.dumps(describe_config(config)))
    assert read_config(values, Path("config.json")) == config
    assert hash(read_config(values, Path("config.json"))) == hash(config)
    for name in ("windows", "rotary_base"):
        del values[name]
    old = read_config(values, Path("config.json"))
    assert old == replace(config, windows=None, rotary_base=10_000.0)


TODAY = {
    "positions": "rotary",
    "head_dim": 10,
    "norm_place": "both",
    "norm_eps": 1e-6,
    "qkv_bias": False,
    "qk_norm": "projection",
    "embedding_scale": 3.0,
    "logit_cap": 5.0,
    "local_rotary_base": 50.0,
    "windows": (2, None, 3),
    "num_experts": 4,
    "router_bias": True,
    "activation": "swiglu_clamped",
}


def test_the_settings_of_today_are_saved_and_loaded(tmp_path: Path):
    config = replace(SMALL, **TODAY)
    model = GPT(config)
    save_checkpoint(tmp_path, config=config, weights=model.state_dict())
    again = load_checkpoint(tmp_path)
    assert again.config == config
    for name, weight in again.model().state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qk_norm": "layer"}, "qk_norm='layer' must be "),
        ({"qk_norm": 1}, "qk_norm=1 must be "),
        ({"router_bias": 2}, "router_bias=2 must be "),
        ({"qkv_bias": "no"}, "qkv_bias='no' must be "),
        ({"head_dim": 2.0}, "head_dim=2.0 must be an int"),
    ],
)
def test_what_is_no_switch_is_named(change, message: str):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        replace(SMALL, **change)


@pytest.mark.usefixtures("as_a_caller")
def test_heads_may_be_given_in_lists():
    config = replace(SMALL, kept_heads=[[0], [1, 2], [3]])
    assert config.kept_heads == ((0,), (1, 2), (3,))
    assert hash(config) == hash(replace(SMALL, kept_heads=((0,), (1, 2), (3,))))


@pytest.mark.usefixtures("as_a_caller")
def test_rates_from_a_tensor_are_saved_as_numbers(tmp_path: Path):
    rates = yarn_rates(D_K, factor=2.0, trained_length=64)
    config = replace(SMALL, positions="rotary", rotary_rates=rates)
    assert config.rotary_rates == tuple(rates.tolist())
    weights = GPT(config).state_dict()
    save_checkpoint(tmp_path, config=config, weights=weights)
    assert load_checkpoint(tmp_path).config == config


# Blocks.


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
