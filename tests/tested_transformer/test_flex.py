"""Attention by blocks is the open attention, for every mask that it can be told."""

import pytest
import torch
from torch import Tensor

from tested_transformer.attention import attention_with_weights
from tested_transformer.flex import blockwise_attention
from tested_transformer.masks import causal_mask, padding_mask, sliding_window_mask
from tested_transformer.positions import alibi_bias, alibi_slopes

# On a CPU PyTorch warns that it makes the table of scores.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

# Pairwise different, and longer than a block of 128 keys.
B, H, H_KV, T, S, D_K = 2, 6, 3, 130, 150, 16
LENGTHS = torch.tensor([0, 133])
DOCUMENTS = (torch.arange(S) // torch.tensor([[40], [77]])).int()
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    ),
]


def sequences(device: str, t: int = T) -> list[Tensor]:
    shapes = (B, H, t, D_K), (B, H_KV, S, D_K), (B, H_KV, S, D_K)
    return [torch.randn(shape, device=device) for shape in shapes]


CASES = {
    "nothing": ({}, lambda t: {}),
    "causal": ({"causal": True}, lambda t: {"causal": True}),
    "a window": ({"window": 31}, lambda t: {"window": 31}),
    "a scale": (
        {"scale": 0.7, "causal": True},
        lambda t: {"scale": 0.7, "causal": True},
    ),
    "padding": ({"lengths": LENGTHS}, lambda t: {"mask": padding_mask(LENGTHS, S)}),
    "documents": (
        {"documents": DOCUMENTS, "causal": True},
        lambda t: {
            "mask": (DOCUMENTS[:, S - t :, None] == DOCUMENTS[:, None])[:, None]
            & causal_mask(t, S)
        },
    ),
    "slopes": (
        {"slopes": alibi_slopes(H), "causal": True},
        lambda t: {"score_bias": alibi_bias(alibi_slopes(H), t, S), "causal": True},
    ),
    "all": (
        {"window": 31, "lengths": LENGTHS, "documents": DOCUMENTS}
        | {"slopes": alibi_slopes(H), "causal": True},
        lambda t: {
            "mask": (DOCUMENTS[:, S - t :, None] == DOCUMENTS[:, None])[:, None]
            & sliding_window_mask(t, S, window=31)
            & padding_mask(LENGTHS, S),
            "score_bias": alibi_bias(alibi_slopes(H), t, S),
        },
    ),
}


def to(device: str, options: dict) -> dict:
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", [T, S])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_open_attention(case: str, t: int, device: str):
    told, written_out = CASES[case]
    inputs = sequences(device, t)
    output = blockwise_attention(*inputs, **to(device, told))
    expected, _ = attention_with_weights(*inputs, **to(device, written_out(t)))
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES)
def test_its_gradients_are_the_open_attentions(case: str):
    told, written_out = CASES[case]
    inputs = [x.requires_grad_() for x in sequences("cuda")]
    output = blockwise_attention(*inputs, **to("cuda", told))
    expected, _ = attention_with_weights(*inputs, **to("cuda", written_out(T)))
    direction = torch.randn_like(output)
    for one, other in zip(
        torch.autograd.grad(output, inputs, direction),
        torch.autograd.grad(expected, inputs, direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_window_must_be_positive():
    with pytest.raises(ValueError, match=r"^window=0 must be positive$"):
        blockwise_attention(*sequences("cpu"), window=0)
