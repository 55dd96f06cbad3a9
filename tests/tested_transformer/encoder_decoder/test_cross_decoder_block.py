"""PyTorch's layer is the oracle: with its weights, its outputs and its gradients."""

import pytest
import torch
from torch import nn

from tested_transformer import causal_mask, padding_mask
from tested_transformer.cache import KVCache
from tested_transformer.encoder_decoder import CrossDecoderBlock
from tested_transformer.experts import count_parameters

B, T, S, D, H, D_FF = 2, 5, 7, 12, 3, 11
TARGET_MASK = padding_mask(torch.tensor([5, 4]))
SOURCE_MASK = padding_mask(torch.tensor([3, 7]))


def like_torch(
    theirs: nn.TransformerDecoderLayer, *, fused: bool = True
) -> CrossDecoderBlock:
    """Make the block that computes what PyTorch's layer does."""
    block = CrossDecoderBlock(
        d_model=D, num_heads=H, d_ff=D_FF, norm_first=theirs.norm_first, fused=fused
    ).to(torch.double)
    attentions = {
        "attention": theirs.self_attn,
        "cross_attention": theirs.multihead_attn,
    }
    modules = {
        "feed_forward.up": theirs.linear1,
        "feed_forward.down": theirs.linear2,
        "add_attention.norm": theirs.norm1,
        "add_cross_attention.norm": theirs.norm2,
        "add_feed_forward.norm": theirs.norm3,
    }
    weights = {}
    for part in ("weight", "bias"):
        for home, attention in attentions.items():
            inputs = getattr(attention, f"in_proj_{part}").chunk(3)
            for name, rows in zip("qkv", inputs, strict=True):
                weights[f"{home}.{name}_proj.{part}"] = rows
            weights[f"{home}.o_proj.{part}"] = getattr(attention.out_proj, part)
        for home, module in modules.items():
            weights[f"{home}.{part}"] = getattr(module, part)
    block.load_state_dict(weights)
    return block


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_it_is_the_layer_of_torch_outputs_and_gradients(norm_first: bool, fused: bool):
    theirs = nn.TransformerDecoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    ).to(torch.double)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = like_torch(theirs, fused=fused)
    mine = [
        torch.randn(B, length, D, dtype=torch.double, requires_grad=True)
        for length in (T, S)
    ]
    yours = [tensor.detach().clone().requires_grad_() for tensor in mine]
    output = ours(mine[0], context=mine[1], mask=TARGET_MASK, context_mask=SOURCE_MASK)
    expected = theirs(
        *yours,
        tgt_mask=~causal_mask(T),
        tgt_key_padding_mask=~TARGET_MASK[:, 0, 0],
        memory_key_padding_mask=~SOURCE_MASK[:, 0, 0],
    )
    torch.testing.assert_close(output, expected)
    towards = torch.randn_like(output)
    output.backward(towards)
    expected.backward(towards)
    for my_input, your_input in zip(mine, yours, strict=True):
        torch.testing.assert_close(my_input.grad, your_input.grad)
    for my_part, your_part in (
        (ours.attention, theirs.self_attn),
        (ours.cross_attention, theirs.multihead_attn),
    ):
        grads = [getattr(my_part, f"{name}_proj").weight.grad for name in "qkv"]
        torch.testing.assert_close(torch.cat(grads), your_part.in_proj_weight.grad)
    torch.testing.assert_close(
        ours.feed_forward.down.weight.grad, theirs.linear2.weight.grad
    )


def test_it_returns_the_weights_of_both_attentions():
    block = CrossDecoderBlock(d_model=D, num_heads=H)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    masks = {"mask": TARGET_MASK, "context_mask": SOURCE_MASK}
    output, own, cross = block(x, context=context, **masks, return_weights=True)
    torch.testing.assert_close(output, block(x, context=context, **masks))
    assert (own.shape, cross.shape) == ((B, H, T, T), (B, H, T, S))
    assert torch.equal(own > 0, (causal_mask(T) & TARGET_MASK).expand_as(own))
    assert torch.equal(cross > 0, SOURCE_MASK.expand_as(cross))


def test_the_past_is_read_and_the_future_is_not_and_all_of_the_context_is():
    block = CrossDecoderBlock(d_model=D, num_heads=H)

    def run(x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return block(x, context=context)

    inputs = torch.randn(1, T, D), torch.randn(1, S, D)
    own, cross = torch.autograd.functional.jacobian(run, inputs)
    read = own[0, :, :, 0].abs().amax(dim=(1, 3)) > 0
    assert torch.equal(read, causal_mask(T))
    assert (cross[0, :, :, 0].abs().amax(dim=(1, 3)) > 0).all()


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_cache_gives_what_a_whole_pass_gives(norm_first: bool):
    block = CrossDecoderBlock(d_model=D, num_heads=H, norm_first=norm_first)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    whole = block(x, context=context)
    (cache,) = KVCache(
        num_layers=1, batch_size=B, num_kv_heads=H, max_length=T, head_dim=D // H
    ).layers
    with torch.no_grad():
        pieces = [block(piece, context=context, cache=cache) for piece in x.split(2, 1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole)


def test_settings_reach_the_parts():
    block = CrossDecoderBlock(
        d_model=D,
        num_heads=H,
        d_context=5,
        d_ff=7,
        activation="swiglu",
        norm="rms",
        norm_first=True,
        bias=False,
        dropout=0.25,
        fused=False,
    )
    assert block(torch.randn(B, T, D), context=torch.randn(B, S, 5)).shape == (B, T, D)
    for attention in (block.attention, block.cross_attention):
        assert (attention.fused, attention.dropout) == (False, 0.25)
    adds = (block.add_attention, block.add_cross_attention, block.add_feed_forward)
    for add in adds:
        assert (add.dropout.p, add.norm_first) == (0.25, True)
        assert isinstance(add.norm, nn.RMSNorm)
    assert all(not name.endswith("bias") for name in block.state_dict())
    # By hand: four matrices of 144; two of 144 and two of 60; three norms; three of 84.
    assert count_parameters(block) == 576 + 408 + 36 + 252


def test_settings_that_do_not_fit_are_named():
    with pytest.raises(
        ValueError, match=r"^d_model=10 must be divisible by num_heads=3$"
    ):
        CrossDecoderBlock(d_model=10, num_heads=3)
