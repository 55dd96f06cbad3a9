"""Graders of *Padding*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.masks import causal_mask, padding_mask
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_depends_on_batch", "grade_ported_masks"]


def grade_depends_on_batch(answer: Callable[..., bool]) -> str:
    """Grade a test for batch invariance, a function of a model, ``x`` and lengths."""
    generator = torch.Generator().manual_seed(0)
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5, generator=generator)
    lengths = torch.tensor([5, 3, 2])
    x = torch.randn(3, 5, 8, generator=generator)
    x[1, 3:], x[2, 2:] = 0.0, 0.0  # padded with zeros, as batches often are

    def right(x: Tensor, lengths: Tensor) -> Tensor:
        return layer(x, mask=padding_mask(lengths, x.shape[1]))

    def unmasked(x: Tensor, lengths: Tensor) -> Tensor:
        return layer(x)

    def centered(x: Tensor, lengths: Tensor) -> Tensor:
        return right(x - x.mean(dim=(0, 1)), lengths)

    def shared(x: Tensor, lengths: Tensor) -> Tensor:
        return right(x - x[:, :1].mean(dim=0), lengths)

    assert not answer(right, x.clone(), lengths), (
        "a right model is accused: look at real tokens only, and allow for rounding"
    )
    assert answer(unmasked, x.clone(), lengths), "a model without a mask is passed"
    assert answer(centered, x.clone(), lengths), (
        "a model that mixes sequences outside of attention is passed"
    )
    assert answer(shared, x.clone(), lengths), (
        "a model that mixes only the real tokens of the sequences is passed"
    )
    return "right"


def grade_ported_masks(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Grade one mask made of two of ``nn.MultiheadAttention``.

    Args:
        answer: A function of ``key_padding_mask`` and ``attn_mask``.
    """
    padding, causal = padding_mask(torch.tensor([3, 1])), causal_mask(4, 3)
    got, expected = answer(~padding[:, 0, 0], ~causal), padding & causal
    assert got.dtype == torch.bool, f"a mask is boolean, not {got.dtype}"
    assert got.ndim == 4, f"it has {got.ndim} axes: the scores have (B, H, T, S)"
    assert got.shape == expected.shape, f"(B, 1, T, S), not {tuple(got.shape)}"
    mistakes = {
        "True still means ignore": ~padding | ~causal,
        "a key that one mask forbids and the other allows is allowed": padding | causal,
        "a key is ignored only where both masks ignore it": ~padding & ~causal,
        "the meaning of the padding mask is not changed": ~padding & causal,
        "the meaning of the attention mask is not changed": padding & ~causal,
    }
    for message, wrong in mistakes.items():
        assert not torch.equal(got, wrong), message
    assert torch.equal(got, expected), "it allows other keys than both masks do"
    return "right"
