"""The smaller model equals the one with shut gates, in outputs and in gradients."""

import re
from dataclasses import replace

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.attentions import DeltaRule
from tested_transformer.decoding import Sampling, generate
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import gated_heads, shut
from tested_transformer.surgery import prune_heads

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=24, num_heads=4, num_layers=3)
GONE = [(0, 0), (0, 1), (2, 2), (2, 3)]
KEPT = ((2, 3), (0, 1, 2, 3), (0, 1))


def make_model(**changes: object) -> GPT:
    return with_large_weights(GPT(replace(CONFIG, **changes)).double())


VARIANTS = [
    {"bias": False, "tie_head": False, "fused": False},
    {"positions": "rotary", "qk_norm": True, "smear": True},
    {"num_kv_heads": 2, "positions": "alibi"},
    {"positions": "rotary", "qk_norm": "heads", "head_dim": 6, "norm_place": "both"},
    {"windows": (3, None, 2), "positions": "rotary", "rotary_base": 100.0},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_pruned_model_equals_the_masked_one(changes: dict) -> None:
    model = make_model(**changes)
    small = prune_heads(model, GONE)
    assert small.config.kept_heads == KEPT
    tokens = torch.randint(13, (2, 7))
    with gated_heads(model, shut(model, GONE)):
        masked = model(tokens)
    pruned = small(tokens)
    torch.testing.assert_close(pruned, masked, rtol=0, atol=1e-12)
    masked.square().sum().backward()
    pruned.square().sum().backward()
    for name, parameter in small.named_parameters():
        gradient = model.get_parameter(name).grad
        if "_proj." in name and not name.endswith("o_proj.bias"):
            layer = int(name.split(".")[1])
            heads = KEPT[layer]
            if "num_kv_heads" in changes and ("k_proj" in name or "v_proj" in name):
                heads = sorted({head // 2 for head in heads})
            own = [6 * head + feature for head in heads for feature in range(6)]
            gradient = gradient[:, own] if "o_proj" in name else gradient[own]
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=1e-10)


def test_the_model_stays_as_it_was_and_shares_nothing() -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = prune_heads(model, GONE)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.zero_()
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_pruned_twice_is_pruned_once() -> None:
    model = make_model()
    # Heads are counted as the model has them now: what was head 3 is head 1.
    twice = prune_heads(prune_heads(model, GONE[:3]), [(2, 2)])
    once = prune_heads(model, GONE)
    assert twice.config == once.config
    tokens = torch.randint(13, (2, 7))
    assert torch.equal(twice(tokens), once(tokens))
    renamed = prune_heads(prune_heads(model, [(1, 0)]), [(1, 0)])
    assert renamed.config.kept_heads == ((0, 1, 2, 3), (2, 3), (0, 1, 2, 3))


def test_it_generates_with_a_cache() -> None:
    small = prune_heads(make_model(positions="alibi"), GONE).eval()
    cache = small.new_cache(2)
    assert [layer.keys.shape[1] for layer in cache.layers] == [2, 4, 2]
    tokens = torch.randint(13, (2, 7))
    steps = [small(tokens[:, :4], cache=cache), small(tokens[:, 4:], cache=cache)]
    torch.testing.assert_close(torch.cat(steps, dim=1), small(tokens))
    settings = {"max_new_tokens": 6, "sampling": Sampling(temperature=0.0)}
    prompts = [[1, 5, 2]]
    cached = generate(small, prompts, **settings)
    assert cached == generate(small, prompts, use_cache=False, **settings)


def test_mode_and_precision_are_kept() -> None:
    small = prune_heads(make_model().bfloat16().eval(), GONE)
    assert {parameter.dtype for parameter in small.parameters()} == {torch.bfloat16}
    assert not small.training
    assert prune_heads(make_model(), GONE).training


@pytest.mark.parametrize(
    ("gone", "changes", "message"),
    [
        ([(1, head) for head in range(4)], {}, "kept_heads[1]=() must be one or more"),
        ([(3, 0)], {}, "heads: the model has no head 0 in layer 3"),
        ([(1, 2)], {"attention": DeltaRule()}, "attention=DeltaRule(gated=False"),
        ([(1, 2)], {"qk_norm": "projection"}, "qk_norm='projection' of model"),
        ([(1, 2)], {"num_kv_heads": 2}, "kept_heads[1]=(0, 1, 3) must be whole"),
    ],
)
def test_what_cannot_be_pruned_is_named(
    gone: list[tuple[int, int]], changes: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        prune_heads(make_model(**changes), gone)
