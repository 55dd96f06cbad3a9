"""Answers to the exercises of *Training*: a right one, and wrong ones."""

from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_peeks, grade_schedule


def factor(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return (steps - step) / (steps - warmup)


def from_zero(step: int, steps: int, warmup: int) -> float:
    return min(step / warmup, factor(step, steps, 0))


def never_up(step: int, steps: int, warmup: int) -> float:
    return (steps - step) / steps


def never_down(step: int, steps: int, warmup: int) -> float:
    return min((step + 1) / (warmup + 1), 1.0)


def to_a_tenth(step: int, steps: int, warmup: int) -> float:
    return 0.1 + 0.9 * factor(step, steps, warmup)


def bent(step: int, steps: int, warmup: int) -> float:
    return factor(step, steps, warmup) ** 2


def half(step: int, steps: int, warmup: int) -> float:
    return factor(step, steps, warmup) / 2


def with_a_jump(step: int, steps: int, warmup: int) -> float:
    return (step + 1) / (warmup + 3) if step < warmup else factor(step, steps, warmup)


def peeks(model: Any, tokens: Tensor) -> bool:
    whole = model(tokens)
    for t in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 11
        if not torch.allclose(model(changed)[:, :t], whole[:, :t], atol=1e-9):
            return True
    return False


def only_the_last(model: Any, tokens: Tensor) -> bool:
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    before, after = model(tokens)[:, :-1], model(changed)[:, :-1]
    return not torch.allclose(before, after, atol=1e-9)


def everywhere(model: Any, tokens: Tensor) -> bool:
    changed = (tokens + 1) % 11
    return not torch.allclose(model(changed), model(tokens), atol=1e-9)


def before_the_first(model: Any, tokens: Tensor) -> bool:
    return False


RIGHT = {grade_schedule: factor, grade_peeks: peeks}
WRONG: dict[Any, dict[str, Any]] = {
    grade_schedule: {
        "the first step is wasted": from_zero,
        "does not rise": never_up,
        "does not fall": never_down,
        "ends at 0.16": to_a_tenth,
        "not straight": bent,
        "is 0.50, not 1": half,
        "one of the two lines is": with_a_jump,
    },
    grade_peeks: {
        "change every token in turn": only_the_last,
        "does not peek": everywhere,
        "is there any before": before_the_first,
    },
}
