"""Graders of *Order*."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tested_transformer.positions import rotary_table, rotate

__all__ = ["grade_positions", "grade_turn"]


def grade_turn(answer: Callable[[Tensor, Tensor, float], Tensor]) -> str:
    """Grade rotary positions that pair the halves of the features.

    Args:
        answer: A function of ``x``, (T, d_k), ``positions``, (T,), and ``base``.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 8, generator=generator)
    positions = torch.tensor([0, 1, 2, 7, 30])
    base = 100.0
    got = answer(x, positions, base)
    assert got.shape == x.shape, f"{tuple(got.shape)}, not {tuple(x.shape)}"

    def is_like(positions: Tensor = positions, base: float = base, **how: Any) -> bool:
        expected = rotate(x, rotary_table(positions, 8, base=base), **how)
        return torch.allclose(got, expected.to(got.dtype), atol=1e-4)

    mistakes = {
        "neighbors are paired, not halves": is_like(pairing="neighbors"),
        "it turns backward": is_like(-positions),
        "every pair but the first is too fast: look at the exponent": is_like(
            base=base**0.5
        ),
        "the base is ignored": is_like(base=10_000.0),
        "position 0 should turn nothing: this one counts from 1": is_like(
            positions + 1
        ),
    }
    for message, matches in mistakes.items():
        assert not matches, message
    assert is_like(), "not the turn: look at one pair at one position"
    return "right"


def grade_positions(answer: Callable[[Tensor], Tensor]) -> str:
    """Grade the positions of real tokens, which do not count padding.

    Args:
        answer: A function of ``real``, boolean and (B, T).
    """
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    got = answer(real)
    assert got.shape == real.shape, f"{tuple(got.shape)}, not {tuple(real.shape)}"
    assert not got.is_floating_point(), "positions are whole numbers"
    first = int(got[0, 2])
    assert first != 2, "the padding is counted: the first token stands at 2"
    assert first != 1, "the first token stands at 1: count from 0"
    assert int(got.min()) >= 0, "some padding stands before the first position"
    assert int(got.max()) < 5, "some padding stands beyond the last position"
    for row, (places, is_real) in enumerate(zip(got, real, strict=True)):
        stands = places[is_real].tolist()
        assert stands == list(range(len(stands))), f"row {row} stands at {stands}"
    return "right"
