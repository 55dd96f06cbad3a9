"""Few bits: worked by hand, bounded, counted, and read by a model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tested_transformer.caches import QuantizedLayer, quantize, quantized_cache
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: batch, heads, tokens, width.
B, H, S, D_K = 2, 3, 7, 4


def test_per_token_by_hand() -> None:
    x = torch.tensor([[0.0, 15, 6, 7.4], [1, 1, 1, 1], [-30, 0, -14.9, -16]])
    in_bits = quantize(x, bits=4, per="token")
    # Steps of 1 from 0, any from 1, and of 2 from -30; two codes in a byte.
    assert in_bits.low.tolist() == [[0], [1], [-30]]
    assert in_bits.step.tolist() == [[1], [0], [2]]
    assert in_bits.codes.tolist() == [[0 + 16 * 15, 6 + 16 * 7], [0, 0], [240, 8 + 112]]
    expected = torch.tensor([[0.0, 15, 6, 7], [1, 1, 1, 1], [-30, 0, -14, -16]])
    assert torch.equal(in_bits.restore(), expected)


@pytest.mark.parametrize(
    ("bits", "per", "dtype", "spread"),
    [
        (8, "channel", torch.float64, 10.0),
        (4, "token", torch.float64, 10.0),
        (8, "channel", torch.float16, 10.0),
        (8, "token", torch.float16, 2e4),
        (4, "token", torch.bfloat16, 10.0),
        (4, "channel", torch.float16, 2e4),
    ],
)
def test_no_number_is_off_by_more_than_half_a_step_and_its_rounding(
    bits: int, per: str, dtype: torch.dtype, spread: float
) -> None:
    x = (torch.randn(B, H, 32, D_K).double() * spread).clamp(-6e4, 6e4)
    x[..., 0, :], x[..., 1, :] = -3 * spread, 3 * spread  # beyond 65504 from each other
    x[..., 0] = 3 * spread
    x = x.to(dtype)
    in_bits = quantize(x, bits=bits, per=per).restore()
    assert in_bits.dtype == dtype
    exact, over = x.double(), -2 if per == "channel" else -1
    extent = exact.amax(over, keepdim=True) - exact.amin(over, keepdim=True)
    half = extent / (2**bits - 1) / 2
    rounding = (exact.abs() + half) * torch.finfo(dtype).eps / 2
    slack = 1e-9 if dtype == torch.float64 else 1e-4  # of the step
    assert ((in_bits.double() - exact).abs() <= half * (1 + slack) + rounding).all()


def new_layer(**settings: Any) -> QuantizedLayer:
    defaults = {"bits": 8, "group_size": 3, "batch_size": B, "max_length": S}
    return QuantizedLayer(**(defaults | settings))


@pytest.mark.parametrize(
    ("bits", "per_number", "dtype"),
    [(8, 2, torch.float32), (4, 1, torch.float64), (4, 1, torch.bfloat16)],
)
def test_its_bytes_by_the_formula(
    bits: int, per_number: int, dtype: torch.dtype
) -> None:
    layer = new_layer(bits=bits)
    k = torch.randn(B, H, S, D_K, dtype=dtype)
    layer.append(k, k)
    # In half bytes: two groups of three tokens; then lowest number and step of each
    # feature and of each token of a group; then the token that waits.
    codes = 2 * (2 * 3) * D_K * per_number // 2
    scales = 2 * (D_K + 3) * (dtype.itemsize + max(dtype.itemsize, 4))
    assert layer.nbytes == B * H * (codes + scales + 2 * D_K * dtype.itemsize)


@torch.no_grad()
def test_a_model_reads_it() -> None:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=13, max_seq_len=S, d_model=24, num_heads=3, num_layers=2
    )
    model, tokens = GPT(config).eval(), torch.randint(13, (B, S))
    exact = model(tokens)
    gaps: list[float] = []
    for bits in (8, 4):
        cache = quantized_cache(model, bits=bits, group_size=3, batch_size=B)
        steps = [model(token, cache=cache) for token in tokens.split(1, dim=1)]
        gaps.append(float((torch.cat(steps, dim=1) - exact).abs().max()))
    assert 0 < gaps[0] < gaps[1] < 0.5
    assert gaps[0] < 0.03


def test_what_a_models_cache_is_told_reaches_every_layer() -> None:
    sizes = {"vocab_size": 13, "max_seq_len": S, "num_heads": 3, "num_layers": 2}
    model = GPT(GPTConfig(d_model=24, **sizes))
    settings = {"bits": 4, "keys_per": "token", "values_per": "channel"}
    cache = quantized_cache(model, **settings, group_size=3, batch_size=B)
    for layer in cache.layers:
        assert isinstance(layer, QuantizedLayer)
        assert settings == {name: getattr(layer, name) for name in settings}
        told = (layer.group_size, layer.batch_size, layer.max_length)
        assert told == (3, B, S)
    odd = GPT(GPTConfig(d_model=15, **sizes))
    assert quantized_cache(odd, bits=8)
    with pytest.raises(ValueError, match=r"^head_dim=5 of model must be even for 4"):
        quantized_cache(odd, bits=4)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^bits=3 must be 8 or 4$"):
        new_layer(bits=3)
    for name in ("keys_per", "values_per"):
        with pytest.raises(ValueError, match=f"^{name}='head' must be one of channel,"):
            new_layer(**{name: "head"})
    for name in ("group_size", "max_length", "batch_size"):
        with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
            new_layer(**{name: 0})


@pytest.mark.parametrize(
    ("x", "bits", "per", "message"),
    [
        (torch.zeros(2, 3), 4, "token", "^x is 3 wide; with bits=4 it must be even$"),
        (torch.zeros(2, 3), 2, "token", "^bits=2 must be 8 or 4$"),
        (torch.zeros(2, 3), 8, "row", "^per='row' must be one of channel, token$"),
        (torch.zeros(7), 8, "token", "x must be .* and not empty; its shape is"),
        (torch.zeros(2, 0, 4), 8, "token", "x must be .* and not empty; its shape is"),
        (torch.ones(3, 4).long(), 8, "token", "x must be floating-point; its dtype is"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    x: Tensor, bits: int, per: str, message: str, as_a_caller: None
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        quantize(x, bits=bits, per=per)
