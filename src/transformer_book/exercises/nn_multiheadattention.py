"""Graders of *Meet nn.MultiheadAttention*."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tested_transformer.checkpoints import from_torch

__all__ = ["grade_heads_of_a_layer", "grade_packed_weights"]


def grade_heads_of_a_layer(
    answer: Callable[[nn.MultiheadAttention, Tensor], Tensor],
) -> str:
    """Grade the weights of each head, taken from a layer that is being trained.

    Args:
        answer: A function of the layer and of ``x``, with its batch where the layer
            wants it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for batch_first in (True, False):
            module = nn.MultiheadAttention(12, 3, dropout=0.5, batch_first=batch_first)
            x = torch.randn(2, 5, 12)
            _, expected = from_torch(module).eval()(x, return_weights=True)
            got = answer(module, x if batch_first else x.transpose(0, 1))
            assert got is not None, "no weights came back"
            assert got.ndim == 4, f"{tuple(got.shape)}: the heads are averaged away"
            assert got.shape == expected.shape, (
                f"{tuple(got.shape)} is not {tuple(expected.shape)} "
                f"for a layer with batch_first={batch_first}"
            )
            sums = got.sum(dim=-1)
            assert torch.allclose(sums, torch.ones_like(sums)), (
                "rows do not sum to 1: dropout is on"
            )
            assert torch.allclose(got, expected, atol=1e-6), "these are other weights"
            assert module.dropout == 0.5, "the layer had dropout, and has none any more"
            assert module.training, "the layer was training, and is not any more"
            module.eval()
            answer(module, x if batch_first else x.transpose(0, 1))
            assert not module.training, "the layer was evaluating, and now it trains"
    return "right"


def grade_packed_weights(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Grade the packed matrix of ``nn.MultiheadAttention``.

    Args:
        answer: A function of the weights of queries, keys and values.
    """
    width = 6
    drawn = torch.randn(3, width, width, generator=torch.Generator().manual_seed(0))
    names = dict(zip("qkv", drawn, strict=True))
    got = answer(*drawn)
    assert got.shape == (3 * width, width), (
        f"{tuple(got.shape)} is not {(3 * width, width)}"
    )
    for (name, matrix), rows in zip(names.items(), got.chunk(3), strict=True):
        assert not torch.equal(rows, matrix.T), f"{name} is transposed"
        for label, weight in names.items():
            held = torch.equal(rows, weight)
            assert label == name or not held, f"the block of {name} holds {label}"
        assert torch.equal(rows, matrix), f"the rows of {name} are mixed with others"
    return "right"
