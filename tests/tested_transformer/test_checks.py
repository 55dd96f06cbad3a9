"""Errors name the argument, what came, and what was wanted."""

import re

import numpy
import pytest
import torch
from torch import Tensor

from tested_transformer import GPT, GPTConfig, MultiHeadAttention
from tested_transformer.attentions import (
    ChosenBlocks,
    DeltaAttention,
    LatentAttention,
)
from tested_transformer.checks import (
    validate_between,
    validate_choice,
    validate_divisible,
    validate_heads,
    validate_sizes,
    validate_tokens,
)
from tested_transformer.training import next_token_loss

D, H = 12, 3
LAYERS = [
    MultiHeadAttention(d_model=D, num_heads=H, core=ChosenBlocks()),
    DeltaAttention(d_model=D, num_heads=H),
    LatentAttention(d_model=D, num_heads=H, head_dim=4, latent_dim=5, rotary_dim=2),
]
CONFIG = GPTConfig(vocab_size=11, max_seq_len=8, d_model=D, num_heads=H, num_layers=1)
MODEL, TOKENS = GPT(CONFIG), torch.randint(11, (50,))


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
        (torch.ones(2, 3, dtype=torch.int64), 4, "3 words after 4 in the cache are"),
        (torch.tensor([[0, 7]]), 0, "words hold ids from 0 to 7; they must be at"),
        (torch.tensor([[-1, 6]]), 0, "words hold ids from -1 to 6; they must be at "),
    ],
)
def test_tokens_that_a_model_cannot_read_are_named(
    tokens: Tensor, start: int, message: str
):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        validate_tokens("words", tokens, 7, 5, start)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("fused", [True, False])
def test_each_sequence_has_a_gradient_of_its_own_in_one_pass(fused: bool):
    settings = {"d_model": 12, "num_heads": 3, "activation": "relu2"}
    model = GPT(GPTConfig(vocab_size=5, fused=fused, **settings))
    weights, tokens = dict(model.named_parameters()), torch.randint(5, (2, 4))

    def loss(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (tokens[None],)).pow(2).mean()

    slopes = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, tokens)
    for index, sequence in enumerate(tokens):
        alone = torch.autograd.grad(loss(weights, sequence), [*weights.values()])
        for name, slope in zip(weights, alone, strict=True):
            torch.testing.assert_close(slopes[name][index], slope)


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


@pytest.mark.usefixtures("as_a_caller")
def test_an_array_is_no_tensor() -> None:
    array, x = numpy.ones((5, 5)), torch.ones(2, 5, D)
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    for call, message in (
        (
            lambda: layer(x, mask=array),
            r"mask must be a boolean tensor .* a ndarray: write mask=torch.as_tensor",
        ),
        (
            lambda: layer(x, score_bias=array),
            r"score_bias must be a tensor; it is a ndarray: write score_bias=torch.as_",
        ),
        (
            lambda: MODEL(TOKENS[None, :3], positions=array),
            r"positions must be a tensor, \(1, 3\); it is a ndarray",
        ),
        (
            lambda: next_token_loss(torch.ones(5, 5, 3), array),
            r"targets must be a tensor, \(5, 5\); it is a ndarray",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{message}"):
            call()
    message = r"^x must be a tensor, \(batch, length, 12\); it is a ndarray$"
    for module in LAYERS:
        with pytest.raises(TypeError, match=message):
            module(array)
