"""What a block is told reaches all its parts, and the rest is as documented."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tested_transformer import MultiHeadAttention
from tested_transformer.encoder_decoder import CrossDecoderBlock, EncoderBlock
from tested_transformer.experts import MixtureOfExperts
from tested_transformer.gpt import DecoderBlock
from tested_transformer.layers import FeedForward

B, T, S, D, H = 2, 3, 5, 6, 2
BLOCKS: dict[type[nn.Module], Callable[[nn.Module, Tensor], Tensor]] = {
    EncoderBlock: lambda block, x: block(x),
    DecoderBlock: lambda block, x: block(x),
    CrossDecoderBlock: lambda block, x: block(x, context=torch.ones(B, S, D)),
}
DEFAULTS: dict[type[nn.Module], dict[str, Any]] = {
    EncoderBlock: {"activation": "relu", "norm": "layer", "norm_first": False},
    DecoderBlock: {"activation": "gelu", "norm": "layer", "qk_norm": False},
    CrossDecoderBlock: {"activation": "relu", "norm": "layer", "norm_first": False},
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_untold_it_is_what_the_documentation_says(kind: type[nn.Module]):
    untold = kind(d_model=D, num_heads=H)
    told = kind(
        d_model=D, num_heads=H, d_ff=4 * D, bias=True, dropout=0.0, **DEFAULTS[kind]
    )
    told.load_state_dict(untold.state_dict())
    x = torch.randn(B, T, D)
    assert torch.equal(BLOCKS[kind](untold, x), BLOCKS[kind](told, x))
    layers = [m for m in untold.modules() if isinstance(m, MultiHeadAttention)]
    assert layers
    assert all(layer.fused for layer in layers)


def test_two_experts_see_a_token_unless_it_is_told_otherwise():
    told = {"d_model": D, "num_experts": 4}
    assert MixtureOfExperts(**told).experts_per_token == 2
    assert DecoderBlock(num_heads=H, **told).feed_forward.experts_per_token == 2


@pytest.mark.parametrize("kind", BLOCKS)
def test_without_bias_no_part_has_one(kind: type[nn.Module]):
    def biases(**told: Any) -> list[str]:
        names = [name for name, _ in kind(**told).named_parameters()]
        return [name for name in names if name.endswith("bias")]

    assert biases(d_model=D, num_heads=H)
    assert not biases(d_model=D, num_heads=H, bias=False)


def test_experts_are_as_they_are_told():
    told = {"d_model": D, "activation": "relu", "bias": False}
    mixture = MixtureOfExperts(num_experts=1, experts_per_token=1, **told)
    alone = FeedForward(**told)
    alone.load_state_dict(mixture.experts[0].state_dict())
    x = torch.randn(B, T, D)
    # One expert for all has the whole share of each token.
    torch.testing.assert_close(mixture(x), alone(x))


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_what_is_dropped_is_what_the_parts_make(
    kind: type[nn.Module], norm_first: bool
):
    order = {} if kind is DecoderBlock else {"norm_first": norm_first}
    block = kind(d_model=D, num_heads=H, dropout=1.0, **order)
    x = expected = torch.randn(B, T, D)
    if order and not norm_first:
        # Of each sum that a norm reads, the sequence itself is left.
        norms = [m for m in block.modules() if isinstance(m, nn.LayerNorm)]
        for norm in norms:
            expected = norm(expected)
    torch.testing.assert_close(BLOCKS[kind](block, x), expected)


def test_the_smallest_sizes_are_sizes():
    x = torch.randn(B, T, 1)
    assert FeedForward(d_model=1, d_ff=1)(x).shape == x.shape
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=1)
    assert layer(torch.randn(B, T, D), context=x).shape == (B, T, D)


def test_shares_are_exact_where_numbers_are_short():
    layer = MixtureOfExperts(d_model=D, num_experts=4, d_ff=7)
    short = copy.deepcopy(layer).bfloat16()
    tokens = torch.randn(B * T, D).bfloat16()
    probabilities, shares, _ = short.route(tokens)
    exact = (tokens @ short.router.weight.T).float().softmax(-1)
    torch.testing.assert_close(probabilities, exact, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(shares.sum(-1), torch.ones(B * T))
    output = short(tokens)
    assert output.dtype == torch.bfloat16


def test_a_mixture_that_has_seen_nothing_has_nothing_to_balance():
    assert MixtureOfExperts(d_model=D, num_experts=2).balance_loss == 0
