"""Norms, feed-forward and sums by hand; what a block is told reaches all its parts."""

import math
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor, nn

from tested_transformer import MultiHeadAttention
from tested_transformer.encoder_decoder import CrossDecoderBlock, EncoderBlock
from tested_transformer.experts import MixtureOfExperts
from tested_transformer.gpt import DecoderBlock
from tested_transformer.layers import (
    ACTIVATIONS,
    GATED,
    NORMS,
    AddNorm,
    FeedForward,
    evaluating,
    make_norm,
)

B, T, D, D_FF = 2, 3, 5, 7
S, E, H = 4, 6, 2  # of blocks: keys across, their width, their heads


# Norms, with their gain, their bias and the number that guards zero.


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_its_formula(name: str):
    norm = make_norm(name, D, bias=False, eps=0.1)
    nn.init.normal_(norm.weight)
    x = torch.randn(T, D, requires_grad=True)
    centered = x - x.mean(dim=-1, keepdim=True) if name == "layer" else x
    size = (centered.square().mean(dim=-1, keepdim=True) + 0.1).sqrt()
    assert_alike(norm(x), centered / size * norm.weight, [x, norm.weight], close=1e-5)


def test_only_a_layer_norm_may_have_a_bias():
    assert make_norm("layer", D).bias is not None
    assert make_norm("layer", D, bias=False).bias is None
    assert AddNorm(d_model=D, bias=False).norm.bias is None
    assert [name for name, _ in make_norm("rms", D).named_parameters()] == ["weight"]


def test_a_norm_has_a_name():
    with pytest.raises(ValueError, match=r"^norm='batch' must be one of layer, rms$"):
        make_norm("batch", D)


# The feed-forward against its formula, for each activation.


def bend(name: str, x: Tensor) -> Tensor:
    """Give the activation from its definition."""
    sigmoid = 1 / (1 + torch.exp(-x))
    cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return {
        "gelu": x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "gelu_tanh": x * 0.5 * (1 + torch.tanh(cubic)),
        "relu": torch.where(x > 0, x, 0.0),
        "relu2": torch.where(x > 0, x * x, 0.0),
        "silu": x * sigmoid,
        "swiglu": x * sigmoid,
        "geglu_tanh": x * 0.5 * (1 + torch.tanh(cubic)),
        "swiglu_clamped": x.clamp(max=7) / (1 + torch.exp(-1.702 * x.clamp(max=7))),
    }[name]


# A bias with every other activation.
@pytest.mark.parametrize(
    ("name", "bias"),
    [(name, at % 2 == 0) for at, name in enumerate([*ACTIVATIONS, *GATED])],
)
def test_a_feed_forward_is_its_formula(name: str, bias: bool):
    layer = FeedForward(d_model=D, d_ff=D_FF, activation=name, bias=bias)
    x = torch.randn(B, T, D)
    x = (x * 20 if name == "swiglu_clamped" else x).requires_grad_()

    def linear(matrix: str, x: Tensor) -> Tensor:
        part = getattr(layer, matrix)
        return x @ part.weight.T + (part.bias if bias else 0)

    inner = bend(name, linear("gate" if name in GATED else "up", x))
    if name == "swiglu_clamped":
        inner = inner * (linear("up", x).clamp(-7, 7) + 1)
    elif name in GATED:
        inner = inner * linear("up", x)
    expected, output = linear("down", inner), layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), output)
    assert_alike(output, expected, [x, *layer.parameters()], close=1e-5)


def test_squared_relu_has_both_derivatives():
    # None is zero, where a ReLU has a kink.
    x = torch.tensor([-1.5, -0.5, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    activation = ACTIVATIONS["relu2"]
    assert torch.autograd.gradcheck(activation, x, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(activation, x, check_batched_grad=True)
    # Both at once, as a penalty on the gradient asks for them.
    once, again = (x.detach().requires_grad_() for _ in range(2))
    for f, x in ((activation, once), (lambda x: F.relu(x).square(), again)):
        output = f(x)
        (gradient,) = torch.autograd.grad(output.exp().sum(), x, create_graph=True)
        (output.sum() + gradient.square().sum()).backward()
    torch.testing.assert_close(once.grad, again.grad)


def test_squared_relu_keeps_one_tensor_for_its_gradient():
    kept: list[Tensor] = []
    x = torch.randn(T, D, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda kept: kept):
        ACTIVATIONS["relu2"](x)
    assert [tensor.shape for tensor in kept] == [x.shape]


def test_untold_a_feed_forward_is_that_of_gpt_2():
    usual = FeedForward(d_model=D)
    spelled_out = FeedForward(d_model=D, d_ff=4 * D, activation="gelu", bias=True)
    spelled_out.load_state_dict(usual.state_dict())
    x = torch.randn(B, T, D)
    assert torch.equal(usual(x), spelled_out(x))


def test_settings_that_a_feed_forward_cannot_have_are_named():
    with pytest.raises(ValueError, match=r"^d_ff=0 must be positive$"):
        FeedForward(d_model=D, d_ff=0)
    with pytest.raises(ValueError, match=r"^d_model=0 must be positive$"):
        FeedForward(d_model=0)
    known = "gelu, gelu_tanh, relu, relu2, silu, swiglu, geglu_tanh, swiglu_clamped"
    with pytest.raises(ValueError, match=f"^activation='tanh' must be one of {known}$"):
        FeedForward(d_model=D, activation="tanh")


# A part runs beside the sequence, and a norm stands before it or after the sum.

# By hand: (1, 2, 3, 2) has the mean 2 and the variance 1/2, and so has twice of it
# a variance of 2: layer norm gives (-1, 0, 1, 0) times the root of 2 for both.
X = torch.tensor([[[1.0, 2.0, 3.0, 2.0]]])
NORMED = torch.tensor([[[-1.0, 0.0, 1.0, 0.0]]]) * 2**0.5


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_norm_stands_after_the_sum_or_before_the_part(norm_first: bool):
    read: list[Tensor] = []
    add = AddNorm(d_model=4, norm_first=True) if norm_first else AddNorm(d_model=4)
    output = add(X, lambda x: read.append(x) or 10 * x)
    torch.testing.assert_close(read[0], NORMED if norm_first else X, rtol=0, atol=1e-4)
    expected = X + 10 * NORMED if norm_first else NORMED
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-3)


def test_in_a_sum_dropout_acts_on_what_is_added_and_never_on_what_passes():
    for norm_first, passed in ((True, X), (False, NORMED)):
        add = AddNorm(d_model=4, dropout=1.0, norm_first=norm_first)
        torch.testing.assert_close(add(X, torch.exp), passed, rtol=0, atol=1e-4)
        assert not torch.allclose(add.eval()(X, torch.exp), passed, atol=1e-2)


# What a block is told reaches all its parts, and the rest is as documented.

DEFAULTS: dict[type[nn.Module], dict[str, Any]] = {
    EncoderBlock: {"activation": "relu", "norm": "layer", "norm_first": False},
    DecoderBlock: {"activation": "gelu", "norm": "layer"},
    CrossDecoderBlock: {"activation": "relu", "norm": "layer", "norm_first": False},
}
each_kind = pytest.mark.parametrize("kind", DEFAULTS)


def call(block: nn.Module, x: Tensor, width: int = E) -> Tensor:
    """Call a block, with a context of this width if it reads one."""
    across = isinstance(block, CrossDecoderBlock)
    return block(x, context=torch.ones(B, S, width)) if across else block(x)


@each_kind
def test_what_a_block_is_told_reaches_all_its_parts(kind: type[nn.Module]):
    settings = {"d_ff": 7, "activation": "swiglu", "norm": "rms", "bias": False}
    settings["dropout"] = 0.25
    if kind is not DecoderBlock:
        settings |= {"norm_first": True, "fused": False}
    if kind is CrossDecoderBlock:
        settings["d_context"] = 3
    block = kind(d_model=E, num_heads=H, **settings)
    for module in block.modules():
        assert not isinstance(module, nn.LayerNorm)
        if isinstance(module, MultiHeadAttention):
            assert (module.num_heads, module.dropout) == (H, 0.25)
            assert module.fused == (kind is DecoderBlock)
        elif isinstance(module, nn.Dropout):
            assert module.p == 0.25
        elif isinstance(module, AddNorm):
            assert module.norm_first
    assert block.feed_forward.gate.weight.shape == (7, E)
    assert all(not name.endswith("bias") for name in block.state_dict())
    assert call(block, torch.randn(B, T, E), 3).shape == (B, T, E)


@each_kind
def test_untold_it_is_what_the_documentation_says(kind: type[nn.Module]):
    usual = kind(d_model=E, num_heads=H)
    spelled_out = kind(
        d_model=E, num_heads=H, d_ff=4 * E, bias=True, dropout=0.0, **DEFAULTS[kind]
    )
    spelled_out.load_state_dict(usual.state_dict())
    x = torch.randn(B, T, E)
    assert torch.equal(call(usual, x), call(spelled_out, x))
    layers = [m for m in usual.modules() if isinstance(m, MultiHeadAttention)]
    assert {layer.fused for layer in layers} == {True}


def test_two_experts_see_a_token_by_default():
    settings = {"d_model": E, "num_experts": 4}
    assert MixtureOfExperts(**settings).experts_per_token == 2
    assert DecoderBlock(num_heads=H, **settings).feed_forward.experts_per_token == 2


def test_experts_are_as_they_are_told():
    settings = {"d_model": E, "activation": "relu", "bias": False}
    mixture = MixtureOfExperts(num_experts=1, experts_per_token=1, **settings)
    alone = FeedForward(**settings)
    alone.load_state_dict(mixture.experts[0].state_dict())
    x = torch.randn(B, T, E)
    # One expert for all has the whole share of each token.
    torch.testing.assert_close(mixture(x), alone(x))


def test_a_model_trains_again_when_the_last_of_its_readers_is_done():
    """One begins while another reads, and ends first or last: as threads do."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)), nn.Dropout())
    model[2].eval()
    first, second, part = (evaluating(m) for m in (model, model, model[1]))
    for reader in (first, second, part):
        reader.__enter__()
    first.__exit__(None, None, None)
    assert [m.training for m in model.modules()] == [False] * 5
    second.__exit__(None, None, None)
    assert [m.training for m in model.modules()] == [True, True, False, False, False]
    part.__exit__(None, None, None)
    assert [m.training for m in model.modules()] == [True, True, True, True, False]


def test_threads_read_a_training_model_without_its_dropout():
    model = nn.Sequential(*(nn.Dropout(0.5) for _ in range(20)))
    x = torch.ones(100)
    dropped: list[int] = []

    def read() -> None:
        for _ in range(200):
            with evaluating(model):
                dropped.append(int((model(x) == 0).sum()))

    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(dropped) == 0
    assert all(module.training for module in model.modules())
