"""Averaged keys: exact where heads agree, and the mean where they do not."""

import re
from dataclasses import replace

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.attentions import DeltaRule, Latent
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interfaces import Attention
from tested_transformer.surgery import with_fewer_keys

SHARED = GPTConfig(vocab_size=13, max_seq_len=11, d_model=24, num_heads=6, num_layers=3)


@pytest.mark.parametrize("qk_norm", [False, "heads", "projection"])
def test_heads_that_agree_lose_nothing(qk_norm: bool | str):
    config = replace(SHARED, qk_norm=qk_norm)
    shared = GPT(replace(config, num_kv_heads=2))
    parts = [".k_proj.", ".v_proj."] + [".k_norm."] * (qk_norm == "projection")
    state = shared.state_dict()
    for name in state:
        if any(part in name for part in parts):
            state[name] = torch.randn_like(state[name])
    shared.load_state_dict(state)
    written_out = GPT(config)
    for name, tensor in state.items():
        if any(part in name for part in parts):
            first, second = tensor.chunk(2)
            state[name] = torch.cat([first, first, first, second, second, second])
    written_out.load_state_dict(state)
    tokens = torch.randint(13, (2, 7))
    torch.testing.assert_close(written_out(tokens), shared(tokens))
    again = with_fewer_keys(written_out, 2)
    assert again.config == shared.config
    torch.testing.assert_close(again(tokens), shared(tokens))


@pytest.mark.parametrize("num_kv_heads", [1, 3, 6])
def test_each_shared_head_is_the_mean_of_its_group(num_kv_heads: int):
    model = with_large_weights(GPT(SHARED).double(), 1.0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copy = with_fewer_keys(model, num_kv_heads)
    for name, tensor in copy.state_dict().items():
        expected = before[name]
        if ".k_proj." in name or ".v_proj." in name:
            groups = expected.unflatten(0, (num_kv_heads, 6 // num_kv_heads, 4))
            expected = groups.mean(dim=1).flatten(0, 1)
        torch.testing.assert_close(tensor, expected, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.zero_()
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_mode_precision_and_chance_are_kept():
    copy = with_fewer_keys(GPT(SHARED).bfloat16().eval(), 3)
    assert copy.head_weight.dtype == torch.bfloat16
    assert not copy.training
    model = GPT(SHARED)
    chance = torch.get_rng_state()
    assert with_fewer_keys(model, 3).training
    assert torch.equal(torch.get_rng_state(), chance)


@pytest.mark.parametrize("num_kv_heads", [0, 4, 12])
def test_groups_must_be_whole(num_kv_heads: int):
    message = f"^num_kv_heads={num_kv_heads} must divide the model's num_kv_heads=6$"
    with pytest.raises(ValueError, match=message):
        with_fewer_keys(GPT(SHARED), num_kv_heads)


@pytest.mark.parametrize(
    ("attention", "change"),
    [
        (Latent(), {"positions": "rotary"}),
        (DeltaRule(gated=True), {"softmax_every": 1}),
    ],
)
def test_attention_without_keys_to_share_is_refused(attention: Attention, change: dict):
    model = GPT(replace(SHARED, attention=attention, **change))
    message = f"attention={attention!r} of model has no keys that heads can share"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        with_fewer_keys(model, 1)


def test_a_pruned_model_is_refused():
    pruned = GPT(replace(SHARED, kept_heads=((0, 1), (2,), (5,))))
    message = "^model was pruned: share its keys before pruning$"
    with pytest.raises(ValueError, match=message):
        with_fewer_keys(pruned, 1)
