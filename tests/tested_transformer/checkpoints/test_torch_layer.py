"""A layer and its translation compute the same, and pass the same gradients back."""

from itertools import product
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.checkpoints import from_torch, to_torch
from tested_transformer.masks import padding_mask
from tested_transformer.multihead import MultiHeadAttention

# Pairwise different: batch, heads, queries, keys, head width, context width.
B, H, T, S, D_K, C = 2, 3, 5, 7, 4, 11
D = H * D_K

Layer = TypeVar("Layer", bound=nn.Module)


def scattered(layer: Layer) -> Layer:
    """Make every parameter, biases included, different from what it began as."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return layer


def results(
    layer: MultiHeadAttention | nn.MultiheadAttention, sequences: list[Tensor]
) -> list[Tensor]:
    """Give output, weights, and the gradients of both inputs, under a mask."""
    x, context = (sequence.clone().requires_grad_() for sequence in sequences)
    mask = padding_mask(torch.tensor([S, S - 2]))
    if isinstance(layer, MultiHeadAttention):
        output, weights = layer(x, context=context, mask=mask, return_weights=True)
    else:
        batch = 0 if layer.batch_first else 1
        asks, answers = x.movedim(0, batch), context.movedim(0, batch)
        how = {"key_padding_mask": ~mask[:, 0, 0], "average_attn_weights": False}
        output, weights = layer(asks, answers, answers, **how)
        output = output.movedim(batch, 0)
    direction = torch.arange(output.numel()).sin().view(output.shape)
    return [output, weights, *torch.autograd.grad(output, [x, context], direction)]


BOTH = (True, False)


def test_each_layer_becomes_the_other_to_the_last_bit_and_nothing_is_drawn():
    for case in product((D, C), BOTH, BOTH, BOTH):
        d_context, batch_first, bias, fused = case
        sizes = {"kdim": d_context, "vdim": d_context, "batch_first": batch_first}
        theirs = nn.MultiheadAttention(D, H, bias=bias, **sizes)
        chance = torch.get_rng_state()
        ours = from_torch(scattered(theirs), fused=fused)
        back = to_torch(ours)
        again = from_torch(back).state_dict()
        assert torch.equal(torch.get_rng_state(), chance)
        assert (ours.fused, back.batch_first) == (fused, True)
        assert (back.in_proj_weight is None) is (d_context != D)
        sequences = [torch.randn(B, T, D), torch.randn(B, S, d_context)]
        for module in (theirs, back):
            expected = results(module, sequences)
            torch.testing.assert_close(results(ours, sequences), expected)
        torch.testing.assert_close(again, ours.state_dict(), rtol=0, atol=0)


def test_dtype_dropout_and_mode_are_kept_in_a_copy():
    theirs = scattered(nn.MultiheadAttention(D, H, dropout=0.25, dtype=torch.double))
    for training in BOTH:
        ours = from_torch(theirs.train(training))
        again = to_torch(ours)
        for layer in (ours, again):
            assert (layer.training, layer.dropout) == (training, 0.25)
            assert {parameter.dtype for parameter in layer.parameters()} == {
                torch.double
            }
            assert all(
                parameter.is_leaf and parameter.requires_grad
                for parameter in layer.parameters()
            )
    for layer in (theirs, ours):
        for parameter in layer.parameters():
            parameter.data.zero_()
    assert all(parameter.abs().sum() > 0 for parameter in again.parameters())


def test_what_the_other_has_not_is_refused():
    for settings, message in (
        ({"add_bias_kv": True}, "add_bias_kv=True has no counterpart here"),
        ({"add_zero_attn": True}, "add_zero_attn=True has no counterpart here"),
        (
            {"kdim": C, "vdim": D},
            f"kdim={C} and vdim={D} must be equal: keys and value",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            from_torch(nn.MultiheadAttention(D, H, **settings))
    capped = AdjustedSoftmax(soft_cap=5.0)
    for settings, message in (
        (
            {"head_dim": 5},
            f"num_heads={H} of head_dim=5 must be d_model={D} wide in nn.",
        ),
        ({"num_kv_heads": 1}, f"num_kv_heads=1 must equal num_heads={H}: PyTorch's "),
        ({"qk_norm": True}, "qk_norm=True has no counterpart in nn.MultiheadAttention"),
        ({"core": capped}, r"core must be Softmax\(\): PyTorch's layer has no other"),
    ):
        ours = MultiHeadAttention(d_model=D, num_heads=H, **settings)
        with pytest.raises(ValueError, match=f"^{message}"):
            to_torch(ours)
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    layer.v_proj = nn.Sequential(layer.v_proj)
    with pytest.raises(TypeError, match=r"^v_proj must be an nn.Linear .* Sequential"):
        to_torch(layer)
