"""PyTorch's layer is the oracle: with its weights, its outputs and its gradients."""

import pytest
import torch
from torch import nn

from tested_transformer import padding_mask
from tested_transformer.encoder_decoder import EncoderBlock
from tested_transformer.experts import count_parameters

B, S, D, H, D_FF = 2, 5, 12, 3, 7
MASK = padding_mask(torch.tensor([5, 3]))


def like_torch(
    theirs: nn.TransformerEncoderLayer, *, fused: bool = True
) -> EncoderBlock:
    """Make the block that computes what PyTorch's layer does."""
    block = EncoderBlock(
        d_model=D, num_heads=H, d_ff=D_FF, norm_first=theirs.norm_first, fused=fused
    ).to(torch.double)
    weights = {}
    for part in ("weight", "bias"):
        inputs = getattr(theirs.self_attn, f"in_proj_{part}").chunk(3)
        for name, rows in zip("qkv", inputs, strict=True):
            weights[f"attention.{name}_proj.{part}"] = rows
        weights |= {
            f"attention.o_proj.{part}": getattr(theirs.self_attn.out_proj, part),
            f"feed_forward.up.{part}": getattr(theirs.linear1, part),
            f"feed_forward.down.{part}": getattr(theirs.linear2, part),
            f"add_attention.norm.{part}": getattr(theirs.norm1, part),
            f"add_feed_forward.norm.{part}": getattr(theirs.norm2, part),
        }
    block.load_state_dict(weights)
    return block


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_it_is_the_layer_of_torch_outputs_and_gradients(norm_first: bool, fused: bool):
    theirs = nn.TransformerEncoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    ).to(torch.double)
    for parameter in theirs.parameters():  # norms and biases too, which start alike
        nn.init.normal_(parameter, std=0.5)
    ours = like_torch(theirs, fused=fused)
    mine = torch.randn(B, S, D, dtype=torch.double, requires_grad=True)
    yours = mine.detach().clone().requires_grad_()
    output = ours(mine, mask=MASK)
    expected = theirs(yours, src_key_padding_mask=~MASK[:, 0, 0])
    torch.testing.assert_close(output, expected)
    towards = torch.randn_like(output)
    output.backward(towards)
    expected.backward(towards)
    torch.testing.assert_close(mine.grad, yours.grad)
    torch.testing.assert_close(
        ours.feed_forward.up.weight.grad, theirs.linear1.weight.grad
    )
    torch.testing.assert_close(
        ours.add_attention.norm.weight.grad, theirs.norm1.weight.grad
    )
    grads = [getattr(ours.attention, f"{name}_proj").weight.grad for name in "qkv"]
    torch.testing.assert_close(torch.cat(grads), theirs.self_attn.in_proj_weight.grad)


def test_it_returns_the_weights_of_its_own_pass():
    block = EncoderBlock(d_model=D, num_heads=H)
    x = torch.randn(B, S, D)
    output, weights = block(x, mask=MASK, return_weights=True)
    torch.testing.assert_close(output, block(x, mask=MASK))
    _, expected = block.attention(x, mask=MASK, return_weights=True)
    torch.testing.assert_close(weights, expected)
    assert weights.shape == (B, H, S, S)
    assert not weights[1, :, :, 3:].any()


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_position_reads_every_other(norm_first: bool):
    block = EncoderBlock(d_model=D, num_heads=H, norm_first=norm_first)
    slopes = torch.autograd.functional.jacobian(block, torch.randn(1, S, D))
    assert (slopes[0, :, :, 0].abs().amax(dim=(1, 3)) > 0).all()


def test_settings_reach_the_parts():
    block = EncoderBlock(
        d_model=D,
        num_heads=H,
        d_ff=7,
        activation="swiglu",
        norm="rms",
        norm_first=True,
        bias=False,
        dropout=0.25,
        fused=False,
    )
    assert (block.attention.fused, block.attention.dropout) == (False, 0.25)
    assert block.feed_forward.gate.weight.shape == (7, D)
    assert all(not name.endswith("bias") for name in block.state_dict())
    for add in (block.add_attention, block.add_feed_forward):
        assert (add.dropout.p, add.norm_first) == (0.25, True)
        assert isinstance(add.norm, nn.RMSNorm)
    # By hand: four matrices of 144, two norms of 12, three matrices of 84.
    assert count_parameters(block) == 576 + 24 + 252


def test_settings_that_do_not_fit_are_named():
    with pytest.raises(
        ValueError, match=r"^d_model=10 must be divisible by num_heads=3$"
    ):
        EncoderBlock(d_model=10, num_heads=3)
    with pytest.raises(ValueError, match=r"^activation='tan' must be one of gelu,"):
        EncoderBlock(d_model=D, num_heads=H, activation="tan")
