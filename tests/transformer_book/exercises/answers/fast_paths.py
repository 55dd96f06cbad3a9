"""Answers to the exercises of *Fast paths*: right ones, and wrong ones."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_book import grade_fast, grade_merge


def merge(output_a: Tensor, log_a: Tensor, output_b: Tensor, log_b: Tensor) -> Tensor:
    share = torch.sigmoid(log_a - log_b)
    return share * output_a + (1 - share) * output_b


def mean(output_a: Tensor, log_a: Tensor, output_b: Tensor, log_b: Tensor) -> Tensor:
    return (output_a + output_b) / 2


def by_number(
    output_a: Tensor, log_a: Tensor, output_b: Tensor, log_b: Tensor
) -> Tensor:
    return (3 * output_a + 6 * output_b) / 9


def unsafe(output_a: Tensor, log_a: Tensor, output_b: Tensor, log_b: Tensor) -> Tensor:
    a, b = log_a.exp(), log_b.exp()
    return (a * output_a + b * output_b) / (a + b)


def joined(output_a: Tensor, log_a: Tensor, output_b: Tensor, log_b: Tensor) -> Tensor:
    return torch.cat([output_a, output_b], dim=1)


def four_axes(q: Tensor, k: Tensor, v: Tensor, **how: float) -> Tensor:
    q, k, v = (each[None, None] for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **how)


def fast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return four_axes(F.pad(q, (0, 4)), F.pad(k, (0, 4)), v, scale=8**-0.5)[0, 0]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def with_four_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return four_axes(q, k, v)[0, 0]


def axes_left(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return fast(q, k, v)[None, None]


def another_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return four_axes(F.pad(q, (0, 4)), F.pad(k, (0, 4)), v)[0, 0]


RIGHT = {grade_merge: merge, grade_fast: fast}
WRONG: dict[Any, dict[str, Any]] = {
    grade_merge: {
        "by its number of keys": mean,
        "higher scores should count for more": by_number,
        "overflows": unsafe,
        "(2, 18, 4) is not (2, 9, 4)": joined,
    },
    grade_fast: {
        "right, but by the plain kernel": plain,
        "right, but by the plain": with_four_axes,
        "(1, 1, 10, 12) is not": axes_left,
        "is the scale the same": another_scale,
    },
}
