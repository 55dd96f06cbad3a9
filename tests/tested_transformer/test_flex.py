"""Attention by blocks is the open attention, for every mask that it can be told."""

import re

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor

from tested_transformer.attention import attention_with_weights
from tested_transformer.flex import blockwise_attention, make_block_mask
from tested_transformer.masks import causal_mask, padding_mask, sliding_window_mask
from tested_transformer.positions import alibi_bias, alibi_slopes

# On a CPU PyTorch warns that it makes the table of scores.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

# Pairwise different, and longer than a block of 128 keys.
B, H, H_KV, T, S, D_K = 2, 6, 3, 130, 150, 16
LENGTHS = torch.tensor([0, 133])
DOCUMENTS = (torch.arange(S) // torch.tensor([[40], [77]])).int()
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def sequences(device: str, t: int = T) -> list[Tensor]:
    shapes = (B, H, t, D_K), (B, H_KV, S, D_K), (B, H_KV, S, D_K)
    return [torch.randn(shape, device=device) for shape in shapes]


def of_documents(t: int) -> Tensor:
    return (DOCUMENTS[:, S - t :, None] == DOCUMENTS[:, None])[:, None]


CAUSAL = {"causal": True}
# What blocks are told, and the same written out for t queries.
CASES = {
    "nothing": ({}, lambda t: {}),
    "causal": (CAUSAL, lambda t: CAUSAL),
    "a window": ({"window": 31}, lambda t: {"window": 31}),
    "a scale": (CAUSAL | {"scale": 0.7}, lambda t: CAUSAL | {"scale": 0.7}),
    "padding": ({"lengths": LENGTHS}, lambda t: {"mask": padding_mask(LENGTHS, S)}),
    "documents": (
        CAUSAL | {"documents": DOCUMENTS},
        lambda t: CAUSAL | {"mask": of_documents(t)},
    ),
    "slopes": (
        CAUSAL | {"slopes": alibi_slopes(H)},
        lambda t: CAUSAL | {"score_bias": alibi_bias(alibi_slopes(H), t, S)},
    ),
    "all": (
        CAUSAL
        | {"window": 31, "lengths": LENGTHS, "documents": DOCUMENTS}
        | {"slopes": alibi_slopes(H)},
        lambda t: {
            "mask": of_documents(t)
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


def by_blocks(inputs: list[Tensor], options: dict) -> Tensor:
    """Attend by FlexAttention, with a mask made of all that is no number to add."""
    options = to(inputs[0].device.type, options)
    added = {name: options.pop(name) for name in ("slopes", "scale") if name in options}
    mask = make_block_mask(
        inputs[0].shape[2], inputs[1].shape[2], device=inputs[0].device, **options
    )
    return blockwise_attention(*inputs, block_mask=mask, **added)


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_open_attention(case: str):
    options, written_out = CASES[case]
    for device in DEVICES:
        for t in (T, S):
            inputs = sequences(device, t)
            output = by_blocks(inputs, options)
            expected, _ = attention_with_weights(*inputs, **to(device, written_out(t)))
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_its_gradients_are_the_open_attentions():
    for case, (options, written_out) in CASES.items():
        inputs = [x.requires_grad_() for x in sequences("cuda")]
        output = by_blocks(inputs, options)
        expected, _ = attention_with_weights(*inputs, **to("cuda", written_out(T)))
        assert_alike(output, expected, inputs, close=1e-4, note=case)


def test_one_mask_serves_other_heads_and_other_sequences():
    mask = make_block_mask(T, S, window=31)
    for q, k, v in (sequences("cpu"), [x[:1, ::3] for x in sequences("cpu")]):
        output = blockwise_attention(q, k, v, block_mask=mask)
        expected, _ = attention_with_weights(q, k, v, window=31)
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


def test_without_a_mask_every_key_is_seen():
    inputs = sequences("cpu")
    expected, _ = attention_with_weights(*inputs)
    torch.testing.assert_close(
        blockwise_attention(*inputs), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"window": 0}, "window=0 must be positive"),
        ({"num_keys": 0}, "num_keys=0 must be positive"),
        ({"documents": DOCUMENTS[:, 1:]}, "documents must be (2, 150); it is (2"),
        (
            {"lengths": torch.tensor([3, 5, 7]), "documents": DOCUMENTS},
            "lengths must be (2,); it is (3,)",
        ),
    ],
)
def test_a_mask_that_cannot_be_made(as_a_caller: None, options: dict, error: str):
    sizes = {"num_queries": T, "num_keys": S}
    with pytest.raises(ValueError, match=f"^{re.escape(error)}"):
        make_block_mask(**sizes | options)


def test_a_mask_of_other_lengths_or_another_batch():
    three = {"lengths": torch.tensor([3, 5, 7])}
    for batch, t, s, options in ((1, S, S, {}), (1, T, T, {}), (3, T, S, three)):
        mask = make_block_mask(t, s, causal=True, **options)
        shape = f"({batch}, 1, {t}, {s})"
        error = f"block_mask was made for {shape}; the scores are (2, 6, 130, 150)"
        with pytest.raises(ValueError, match=f"^{re.escape(error)}"):
            blockwise_attention(*sequences("cpu"), block_mask=mask)


def test_a_mask_is_made_where_its_tensors_are():
    for name, tensor in (("lengths", LENGTHS), ("documents", DOCUMENTS)):
        mask = make_block_mask(T, S, **{name: tensor.to("meta")})
        assert mask.kv_num_blocks.device.type == "meta", name
        assert mask.shape == (B, 1, T, S), name
    assert make_block_mask(T, S, window=31).kv_num_blocks.device.type == "cpu"


def test_a_mask_on_two_devices(as_a_caller: None):
    for where, device in (("cpu", "meta"), ("meta", None), ("meta", "cpu")):
        places = f"lengths on cpu, documents on {where}, device={device}"
        documents = DOCUMENTS.to(where)
        with pytest.raises(
            ValueError, match=f"^the mask must be made on one device: {places}$"
        ):
            make_block_mask(T, S, lengths=LENGTHS, documents=documents, device=device)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"slopes": alibi_slopes(3)}, r"slopes must be \(6,\); it is \(3,\)$"),
        (
            {"block_mask": causal_mask(T, S)},
            "block_mask must be a BlockMask, as make_",
        ),
        (
            {"block_mask": make_block_mask(T, S, causal=True, device="meta")},
            "block_mask is on meta but must be where q is, on cpu$",
        ),
    ],
)
def test_what_does_not_fit_is_named(as_a_caller: None, option: dict, error: str):
    with pytest.raises((TypeError, ValueError), match=f"^{error}"):
        blockwise_attention(*sequences("cpu"), **option)
