"""Slowed rotary positions against those of ``transformers``, and worked by hand."""

import math

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama as llama

from tested_transformer.positions import rotary_table, rotate
from tested_transformer.rotary_scaling import (
    dynamic_factor,
    linear_rates,
    llama3_rates,
    longrope_attention_factor,
    longrope_rates,
    ntk_rates,
    plain_rates,
    scaled_table,
    yarn_attention_factor,
    yarn_rates,
)

# Pairwise different: batch, heads, positions; a head has 16 features.
B, H, T, D_K, TRAINED = 2, 3, 7, 16, 40


def theirs(kind: str, *, factor: float, base: float = 10_000.0, **more):
    settings = {"rope_type": kind, "factor": factor, "rope_theta": base, **more}
    if kind in ("yarn", "llama3", "longrope"):
        settings["original_max_position_embeddings"] = TRAINED
    return LlamaConfig(
        hidden_size=5 * D_K,
        num_attention_heads=5,
        head_dim=D_K,
        max_position_embeddings=TRAINED,
        rope_parameters=settings,
    )


def from_theirs(kind: str, *, length: int | None = None, **settings):
    config = theirs(kind, **settings)
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu", length)


def assert_same_rates(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours.float(), expected, rtol=1e-6, atol=0)


def test_rates_are_those_of_transformers():
    for factor, base in ((1.0, 10_000.0), (3.0, 500.0), (8.0, 10_000.0)):
        how = {"factor": factor, "base": base}
        rates, scale = from_theirs("linear", **how)
        assert_same_rates(linear_rates(D_K, **how), rates)
        assert scale == 1
        rates, scale = from_theirs("yarn", **how)
        assert_same_rates(yarn_rates(D_K, trained_length=TRAINED, **how), rates)
        assert yarn_attention_factor(factor) == pytest.approx(scale, rel=1e-12)


def test_the_ramp_of_yarn_is_that_of_transformers():
    for base in (10_000.0, 20.0):
        for fast, slow in ((32.0, 1.0), (4.0, 0.5), (2.0, 1.9)):
            how = {"factor": 5.0, "base": base}
            rates, _ = from_theirs("yarn", **how, beta_fast=fast, beta_slow=slow)
            ours = yarn_rates(D_K, trained_length=TRAINED, **how, fast=fast, slow=slow)
            assert_same_rates(ours, rates)


def test_dynamic_ntk_is_that_of_transformers():
    for factor, base in ((1.0, 10_000.0), (2.5, 500.0)):
        how = {"factor": factor, "base": base}
        for length in (11, TRAINED, 41, 320):
            rates, scale = from_theirs("dynamic", length=length, **how)
            slower = dynamic_factor(length, trained_length=TRAINED, factor=factor)
            assert_same_rates(ntk_rates(D_K, factor=slower, base=base), rates)
            assert scale == 1
            assert length > TRAINED or slower == 1


def test_the_rates_of_llama_3_are_those_of_transformers():
    for base in (500_000.0, 20.0):
        for fast, slow in ((4.0, 1.0), (2.0, 0.5), (2.0, 1.9)):
            how = {"factor": 8.0, "base": base}
            bounds = {"low_freq_factor": slow, "high_freq_factor": fast}
            rates, scale = from_theirs("llama3", **how, **bounds)
            how |= {"trained_length": TRAINED}
            assert_same_rates(llama3_rates(D_K, **how, fast=fast, slow=slow), rates)
            assert scale == 1


def test_longrope_is_that_of_transformers():
    short = [1 + pair / 10 for pair in range(D_K // 2)]
    long = [1.0 + pair**2 for pair in range(D_K // 2)]
    lists = {"short_factor": short, "long_factor": long}
    for factor, base in ((1.0, 10_000.0), (8.0, 10_000.0), (8.0, 20.0)):
        for length, factors in ((TRAINED, short), (TRAINED + 1, long)):
            how = {"factor": factor, "base": base, "length": length}
            rates, scale = from_theirs("longrope", **how, **lists)
            assert_same_rates(longrope_rates(D_K, factors=factors, base=base), rates)
            ours = longrope_attention_factor(factor, trained_length=TRAINED)
            assert ours == pytest.approx(scale, rel=1e-12)


def test_turned_queries_and_their_gradients_are_those_of_transformers():
    turn = llama.LlamaRotaryEmbedding(theirs("yarn", factor=4.0))
    q, k = torch.randn(2, B, H, T, D_K, requires_grad=True)
    positions = torch.arange(T) + 50
    rates = yarn_rates(D_K, factor=4.0, trained_length=TRAINED)
    scale = yarn_attention_factor(4.0)
    table = scaled_table(positions, rates, attention_factor=scale)
    ours = rotate(q, table), rotate(k, table)
    expected = llama.apply_rotary_pos_emb(q, k, *turn(q, positions.expand(B, T)))
    assert_alike(ours, expected, [q, k], close=2e-5)


def test_plain_rates_make_the_plain_table():
    positions = torch.tensor([[0, 3, 100_000], [5, 1, 2]])
    for base in (10_000.0, 7.0):
        table = scaled_table(positions, plain_rates(D_K, base=base))
        expected = rotary_table(positions, D_K, base=base)
        torch.testing.assert_close(table, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plain_rates(5), "head_dim=5 must be positive and even"),
        (lambda: ntk_rates(2, factor=2.0), "head_dim=2 must be at least 4"),
        (lambda: yarn_attention_factor(math.inf), "factor=inf must be at least 1"),
        (
            lambda: llama3_rates(8, factor=2.0, trained_length=9, slow=4.0),
            "slow=4.0 must lie between 0 and fast=4.0",
        ),
        (lambda: longrope_rates(8, factors=[1.0] * 3), "factors has 3 numbers; it"),
        (lambda: longrope_rates(4, factors=[1.0, 0.0]), r"factors=\[1.0, 0.0\] must"),
        (
            lambda: longrope_attention_factor(2.0, trained_length=1),
            "trained_length=1 must be at least 2",
        ),
        (
            lambda: scaled_table(torch.arange(3), plain_rates(8)[:0]),
            "head_dim=0 must be positive",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_kind_checks_what_it_is_told():
    trained = {"trained_length": 9}
    for call in (
        lambda **how: linear_rates(8, **how),
        lambda **how: ntk_rates(8, **how),
        lambda **how: dynamic_factor(5, **trained, **how),
        lambda **how: yarn_rates(8, **trained, **how),
        yarn_attention_factor,
        lambda **how: llama3_rates(8, **trained, **how),
        lambda **how: longrope_attention_factor(**trained, **how),
    ):
        with pytest.raises(ValueError, match=r"^factor=0.5 must be at least 1"):
            call(factor=0.5)
    for rates in (yarn_rates, llama3_rates):
        with pytest.raises(ValueError, match=r"^slow=4.0 must lie between 0 and fast="):
            rates(8, factor=2.0, **trained, slow=4.0, fast=4.0)
        with pytest.raises(ValueError, match=r"^trained_length=0 must be positive$"):
            rates(8, factor=2.0, trained_length=0)
    for base in (1.0, float("inf")):
        with pytest.raises(ValueError, match=f"^base={base} must be more than 1"):
            yarn_rates(8, factor=2.0, **trained, base=base)
