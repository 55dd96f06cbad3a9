"""A block is what its parts make of its input, one after the other."""

import pytest
import torch

from tested_transformer.gpt import DecoderBlock

B, T, D, H = 2, 5, 12, 3


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("num_experts", [0, 4])
def test_it_adds_what_its_parts_find(num_experts: int, norm: str):
    block = DecoderBlock(d_model=D, num_heads=H, norm=norm, num_experts=num_experts)
    x = torch.randn(B, T, D)
    attended, weights = block.attention(
        block.attention_norm(x), causal=True, return_weights=True
    )
    middle = x + attended
    expected = middle + block.feed_forward(block.feed_forward_norm(middle))
    torch.testing.assert_close(block(x), expected)
    output, recorded = block(x, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(recorded, weights)


def test_dropout_acts_on_what_is_added_and_never_on_what_passes():
    block = DecoderBlock(d_model=D, num_heads=H, dropout=1.0)
    x = torch.randn(B, T, D)
    assert torch.equal(block(x), x)
    assert not torch.allclose(block.eval()(x), x)


def test_settings_reach_the_parts():
    block = DecoderBlock(
        d_model=D,
        num_heads=H,
        num_kv_heads=1,
        d_ff=7,
        bias=False,
        dropout=0.25,
        qk_norm=True,
        fused=False,
        activation="swiglu",
    )
    assert block.attention.num_kv_heads == 1
    assert (block.attention.qk_norm, block.attention.fused) == (True, False)
    assert block.attention.dropout == 0.25
    assert block.feed_forward.gate.weight.shape == (7, D)
    assert all(not name.endswith("bias") for name in block.state_dict())


def test_an_unknown_norm_is_named():
    with pytest.raises(ValueError, match=r"^norm='batch' must be one of layer, rms$"):
        DecoderBlock(d_model=D, num_heads=H, norm="batch")
