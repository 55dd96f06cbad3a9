"""Answers to the exercises of *Order*: right ones, and wrong ones."""

from functools import partial

import torch

from transformer_book import grade_positions, grade_turn


def turn(x, positions, base, *, first=0, sign=1, speed=2, neighbors=False):
    half = x.shape[-1] // 2
    rates = base ** (-speed * torch.arange(half) / x.shape[-1])
    angles = sign * (positions[:, None] + first) * rates
    turns = torch.polar(torch.ones_like(angles), angles)
    if neighbors:
        arrows = torch.view_as_complex(x.unflatten(-1, (half, 2)))
        return torch.view_as_real(arrows * turns).flatten(-2)
    arrows = torch.complex(x[:, :half], x[:, half:]) * turns
    return torch.cat([arrows.real, arrows.imag], dim=-1)


def positions_of(real):
    return (real.cumsum(dim=1) - 1).clamp(min=0)


RIGHT = {grade_turn: turn, grade_positions: positions_of}
WRONG = {
    grade_turn: {
        "neighbors are paired": partial(turn, neighbors=True),
        "it turns backward": partial(turn, sign=-1),
        "look at the exponent": partial(turn, speed=1),
        "the base is ignored": lambda x, at, _: turn(x, at, 10_000.0),
        "counts from 1": partial(turn, first=1),
        "not the turn": lambda x, *_: x,
        "(5, 4), not (5, 8)": lambda x, *_: x[:, :4],
    },
    grade_positions: {
        "the padding is counted": lambda real: torch.arange(5).expand_as(real),
        "count from 0": lambda real: real.cumsum(dim=1),
        "before the first": lambda real: real.cumsum(dim=1) - 1,
        "beyond the last": lambda real: torch.where(real, positions_of(real), 5),
        "row 2 stands at [0, 0, 0]": lambda real: (
            torch.arange(5) - (~real).sum(dim=1, keepdim=True)
        ).clamp(min=0),
        "whole numbers": lambda real: positions_of(real).double(),
        "(3,), not (3, 5)": lambda real: real.sum(dim=1),
    },
}
