"""A stretched model has the same weights, and other rates."""

from dataclasses import replace

import pytest
import torch

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.decoding import generate
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.rotary_scaling import (
    linear_rates,
    ntk_rates,
    plain_rates,
    yarn_attention_factor,
    yarn_rates,
)
from tested_transformer.surgery import stretched, stretched_by

CONFIG = GPTConfig(
    vocab_size=11,
    max_seq_len=8,
    d_model=24,
    num_heads=3,
    num_layers=2,
    positions="rotary",
)


def test_a_stretched_model_has_the_same_weights_and_a_longer_table():
    model = GPT(CONFIG).eval()
    tokens = torch.randint(11, (2, 8))
    same = stretched(model, 20, plain_rates(8))
    rates = tuple(plain_rates(8).tolist())
    assert same.config == replace(CONFIG, max_seq_len=20, rotary_rates=rates)
    assert not same.training
    torch.testing.assert_close(same(tokens), model(tokens), rtol=0, atol=0)
    for name, weight in model.state_dict().items():
        assert torch.equal(same.state_dict()[name], weight)
    # Every second position at half the rates: the angles of training.
    slow = stretched(model, 16, linear_rates(8, factor=2.0))
    positions = torch.arange(0, 16, 2).expand(2, 8)
    torch.testing.assert_close(slow(tokens, positions=positions), model(tokens))
    assert not torch.allclose(slow(tokens), model(tokens), atol=1e-4)


def test_a_model_stretched_by_a_rule_keeps_it_in_a_checkpoint(tmp_path):
    model = GPT(replace(CONFIG, rotary_base=300.0)).eval()
    slowed = {"factor": 2.5, "base": 300.0}
    tokens = torch.randint(11, (2, 20))
    for scaling, rates, scale in (
        ("linear", linear_rates(8, **slowed), 1.0),
        ("ntk", ntk_rates(8, **slowed), 1.0),
        ("yarn", yarn_rates(8, trained_length=8, **slowed), yarn_attention_factor(2.5)),
    ):
        longer = stretched_by(model, 2.5, scaling=scaling)
        expected = stretched(model, 20, rates, attention_factor=scale)
        assert torch.equal(longer(tokens), expected(tokens))
        folder, weights = tmp_path / scaling, longer.state_dict()
        save_checkpoint(folder, config=longer.config, weights=weights)
        loaded = load_checkpoint(folder).model().eval()
        assert loaded.config == longer.config
        assert torch.equal(loaded(tokens), longer(tokens))
        # Writing packs the weights: the same tokens as reading all anew.
        how = {"max_new_tokens": 17, "seed": 3}
        assert generate(longer, [[1, 2]], **how) == generate(
            longer, [[1, 2]], use_cache=False, **how
        )


def test_a_stretched_model_is_one_with_the_larger_base():
    model = GPT(CONFIG)
    base = 10_000 * 3 ** (8 / 6)
    larger = replace(CONFIG, max_seq_len=24, rotary_base=base)
    expected = GPT.from_weights(larger, model.state_dict())
    tokens = torch.randint(11, (2, 24))
    logits = stretched(model, 24, ntk_rates(8, factor=3.0))(tokens)
    torch.testing.assert_close(logits, expected(tokens))


def test_the_attention_factor_multiplies_scores_by_its_square():
    model = GPT(CONFIG)
    model.blocks[0].attention.fused = False
    factor = yarn_attention_factor(4.0)
    sharp = stretched(model, 8, plain_rates(8), attention_factor=factor)
    tokens = torch.randint(11, (2, 8))
    _, (weights, _) = model(tokens, return_weights=True)
    _, (sharper, _) = sharp(tokens, return_weights=True)
    powers = weights**factor**2
    torch.testing.assert_close(sharper, powers / powers.sum(dim=-1, keepdim=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: stretched(
                GPT(replace(CONFIG, positions="alibi")), 9, plain_rates(8)
            ),
            "positions='alibi' must be 'rotary' for rotary_rates",
        ),
        (
            lambda: stretched(GPT(CONFIG), 9, plain_rates(24)),
            "12 rotary_rates must be 4: one for each pair of a head of 8",
        ),
        (
            lambda: stretched_by(GPT(replace(CONFIG, positions="none")), 2.0),
            "positions='none' of model must be 'rotary'",
        ),
        (
            lambda: stretched_by(stretched_by(GPT(CONFIG), 2.0), 2.0),
            "rotary_rates of model must be None",
        ),
        (lambda: stretched_by(GPT(CONFIG), 0.5), "factor=0.5 must be at least 1"),
        (lambda: stretched_by(GPT(CONFIG), 2.0, scaling="pi"), "scaling='pi'"),
    ],
)
def test_what_cannot_be_stretched_is_named(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()
