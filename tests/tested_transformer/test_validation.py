"""Errors name the argument, and answer habits from other libraries."""

import re

import pytest
import torch
from torch import Tensor

from tested_transformer import MultiHeadAttention
from tested_transformer.validation import (
    validate_between,
    validate_choice,
    validate_divisible,
    validate_heads,
    validate_sizes,
    validate_tokens,
)

D, H = 12, 3


@pytest.mark.usefixtures("as_a_caller")
def test_a_size_is_a_positive_int():
    validate_sizes(one=1, many=10**9)
    with pytest.raises(ValueError, match=r"^width=-3 must be positive$"):
        validate_sizes(length=2, width=-3)
    for wrong in (2.0, "2", None):
        with pytest.raises(TypeError, match=rf"^width={wrong!r} must be an int$"):
            validate_sizes(width=wrong)


def test_a_choice_is_one_of_those_there_are():
    validate_choice("color", "red", {"red": 1, "blue": 2})
    with pytest.raises(ValueError, match=r"^color='tall' must be one of red, blue$"):
        validate_choice("color", "tall", ("red", "blue"))


def test_a_value_lies_between_two_others():
    for value in (0, 0.5, 1):
        validate_between("share", value, 0, 1)
    with pytest.raises(ValueError, match=r"^share=1.5 must lie between 0 and 1$"):
        validate_between("share", 1.5, 0, 1)
    with pytest.raises(ValueError, match=r"^part=0 must lie between 1 and whole=5$"):
        validate_between("part", 0, 1, 5, "whole")
    with pytest.raises(ValueError, match=r"^share=nan must lie between 0 and 1$"):
        validate_between("share", float("nan"), 0, 1)


def test_heads_divide_the_model_unless_they_have_a_width_of_their_own():
    validate_heads(12, 3, num_kv_heads=1)
    validate_heads(10, 3, head_dim=7)
    with pytest.raises(ValueError, match=r"^d_model=10 must be divisible by num_he"):
        validate_heads(10, 3)
    with pytest.raises(ValueError, match=r"^num_kv_heads=2 must divide num_heads=3$"):
        validate_heads(12, 3, num_kv_heads=2)
    with pytest.raises(ValueError, match=r"^width=6 must be divisible by num_heads=0$"):
        validate_divisible("width", 6, 0)


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize(
    ("tokens", "start", "message"),
    [
        (torch.ones(3, dtype=torch.int64), 0, "words must be (B, T) and not empty; "),
        (torch.ones(2, 0, dtype=torch.int64), 0, "words must be (B, T) and not empty;"),
        (torch.ones(2, 6, dtype=torch.int64), 0, "6 words are more than max_seq_len=5"),
        (
            torch.ones(2, 3, dtype=torch.int64),
            4,
            "3 words after 4 in the cache are more than max_seq_len=5",
        ),
        (
            torch.tensor([[0, 7]]),
            0,
            "words hold ids from 0 to 7; they must be at least ",
        ),
        (torch.tensor([[-1, 6]]), 0, "words hold ids from -1 to 6; they must be at "),
    ],
)
def test_tokens_that_a_model_cannot_read_are_named(
    tokens: Tensor, start: int, message: str
):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        validate_tokens("words", tokens, 7, 5, start)


@pytest.mark.usefixtures("as_a_caller")
def test_tokens_are_of_whole_numbers_that_an_embedding_takes():
    for dtype in (torch.int64, torch.int32):
        validate_tokens("words", torch.tensor([[0, 6]], dtype=dtype), 7, 5, 3)
    for dtype in (torch.float32, torch.uint8, torch.bool):
        message = f"^words must be int64 or int32; their dtype is {dtype}$"
        with pytest.raises(TypeError, match=message):
            validate_tokens("words", torch.ones(2, 3, dtype=dtype), 7, 5)
    # Ids on another device are not looked at: that would mean to wait for it.
    validate_tokens("words", torch.tensor([[99]], device="meta"), 7, 5)


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (lambda: MultiHeadAttention(512, 8), "d_model=512, num_heads=8"),
        (
            lambda: MultiHeadAttention(512, 8, 0.1, False),
            "d_model=512, num_heads=8, dropout=0.1, bias=False",
        ),
        (
            lambda: MultiHeadAttention(embed_dim=512, num_heads=8, batch_first=True),
            "d_model=512, num_heads=8",
        ),
        (
            lambda: MultiHeadAttention(512, 8, kdim=64, vdim=64, dtype=torch.half),
            "d_model=512, num_heads=8, d_context=64, dtype=dtype",
        ),
        (lambda: MultiHeadAttention(dim=512, n_head=8), "d_model=512, num_heads=8"),
        (lambda: MultiHeadAttention(d_model=512, nhead=8), "d_model=512, num_heads=8"),
        (
            lambda: MultiHeadAttention(hidden_size=512, num_attention_heads=8),
            "d_model=512, num_heads=8",
        ),
    ],
)
def test_settings_of_other_layers_are_answered_with_ours(make, written: str):
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == (
        "MultiHeadAttention takes keyword arguments: "
        f"write MultiHeadAttention({written})"
    )


X, Y, PAD = torch.ones(2, 5, 12), torch.ones(2, 7, 12), torch.zeros(2, 5).bool()


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda layer: layer(X, X, X), "layer(x)"),
        (lambda layer: layer(X, Y, Y), "layer(x, context=keys)"),
        (lambda layer: layer(X, X, Y), "layer(x, context=keys)"),
        (
            lambda layer: layer(X, X, X, key_padding_mask=PAD, need_weights=False),
            "layer(x, mask=token_mask(~key_padding_mask), return_weights=False)",
        ),
        (
            lambda layer: layer(X, attn_mask=PAD, is_causal=True),
            "layer(x, mask=~attn_mask, causal=True); in a mask True = may attend, and "
            "from_additive converts a mask of floats",
        ),
        (
            lambda layer: layer(X, attention_mask=PAD),
            "layer(x, mask=token_mask(attention_mask))",
        ),
        (
            lambda layer: layer(X, attention_mask=torch.zeros(2, 1, 5, 5)),
            "layer(x, mask=from_additive(attention_mask))",
        ),
        (lambda layer: layer(X, PAD), "layer(x, mask=mask)"),
        (lambda layer: layer(X, Y, Y, PAD), "layer(x, context=keys, mask=mask)"),
        (
            lambda layer: layer(X, padding_mask=PAD, causal=True),
            "layer(x, mask=token_mask(padding_mask), causal=True)",
        ),
        (
            lambda layer: layer(query=X, key=Y, value=Y, average_attn_weights=False),
            "layer(x, context=key)",
        ),
    ],
)
def test_calls_of_other_layers_are_answered_with_ours(call, written: str):
    with pytest.raises(TypeError) as caught:
        call(MultiHeadAttention(d_model=D, num_heads=H))
    assert str(caught.value) == (
        "MultiHeadAttention takes one sequence x, and for cross-attention a context: "
        f"write {written}"
    )


def test_what_nobody_knows_is_pythons_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        MultiHeadAttention(d_model=D, num_heads=H, colour=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        MultiHeadAttention(d_model=D, num_heads=H)(X, colour=3)


def test_a_list_of_ids_is_answered_with_the_line_to_write():
    with pytest.raises(TypeError, match=r"it is a list: .* write torch.tensor\(\[ids"):
        validate_tokens("tokens", [1, 2], 7, 5)
