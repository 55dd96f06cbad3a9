"""Graders of *Blocks*."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["grade_block", "grade_norm"]


def grade_norm(answer: Callable[[Tensor, Tensor, Tensor, float], Tensor]) -> str:
    """Grade a layer norm over the last axis.

    Args:
        answer: A function of ``x``, ``gain``, ``bias`` and ``eps``.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 5, generator=generator) * 0.01  # small, so that eps counts
    gain = torch.rand(5, generator=generator) + 0.5
    bias = torch.randn(5, generator=generator)
    eps = 1e-4
    got = answer(x, gain, bias, eps)
    assert got.shape == x.shape, f"{tuple(got.shape)}, not {tuple(x.shape)}"

    def is_like(output: Tensor) -> bool:
        return torch.allclose(got, output, atol=1e-5)

    centered, plain = x - x.mean(dim=-1, keepdim=True), F.layer_norm(x, (5,), eps=eps)
    unbiased = (x.var(dim=-1, keepdim=True) + eps).sqrt()
    spread = x.std(dim=-1, correction=0, keepdim=True)
    mean_square = x.square().mean(dim=-1, keepdim=True)
    mistakes = {
        "the variance is the mean of D squares: this divides by D - 1": (
            centered / unbiased * gain + bias
        ),
        "eps belongs under the root": centered / (spread + eps) * gain + bias,
        "eps is left out": centered / spread * gain + bias,
        "mean and variance over the sequence: tokens meet": (
            F.layer_norm(x, (3, 5), eps=eps) * gain + bias
        ),
        "the mean is not subtracted: that is RMS norm": (
            x / (mean_square + eps).sqrt() * gain + bias
        ),
        "gain and bias are missing": plain,
        "first the gain, then the bias": (plain + bias) * gain,
    }
    for message, mistaken in mistakes.items():
        assert not is_like(mistaken), message
    assert is_like(plain * gain + bias), "not a layer norm: try gain 1 and bias 0"
    return "right"


def grade_block(answer: Callable[..., Tensor]) -> str:
    """Grade a pre-norm block that is put together from its parts.

    Args:
        answer: A function of ``x``, ``norm1``, ``attention``, ``norm2`` and
            ``feed_forward``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.randn(2, 4, 6)
        # A matrix will do for attention. Norms differ by their gains.
        parts = nn.LayerNorm(6), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6)
        nn.init.uniform_(parts[0].weight, 0.5, 1.5)
        nn.init.uniform_(parts[2].weight, 0.5, 1.5)
    norm1, attention, norm2, feed_forward = parts
    got = answer(x, *parts)

    def is_like(output: Tensor) -> bool:
        return torch.allclose(got, output, atol=1e-5)

    y = x + attention(norm1(x))
    normed, after = norm1(x), norm1(x + attention(x))
    stream = norm2(normed + attention(normed))
    mistakes = {
        "that is post-norm: the norm is on the stream, not on what a part reads": (
            norm2(after + feed_forward(after))
        ),
        "nothing is added: the parts replace the stream": (
            feed_forward(norm2(attention(norm1(x))))
        ),
        "both parts read the same x: the feed-forward reads the sum": (
            y + feed_forward(norm2(x))
        ),
        "the norm is on the stream, too: add to what was there": (
            stream + feed_forward(stream)
        ),
        "both parts read through the same norm": y + feed_forward(norm1(y)),
    }
    for message, mistaken in mistakes.items():
        assert not is_like(mistaken), message
    assert is_like(y + feed_forward(norm2(y))), "not the block"
    return "right"
