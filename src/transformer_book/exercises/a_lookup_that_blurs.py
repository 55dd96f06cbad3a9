"""Graders of *A lookup that blurs*."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["grade_soft_get", "grade_temperature"]


def grade_soft_get(answer: Callable[..., Tensor]) -> str:
    """Grade a blurred lookup that goes over to a default far from all keys.

    Args:
        answer: A function of ``query``, ``keys``, ``values``, ``default`` and ``far``.
    """
    table = torch.tensor([0.0, 2.0, 6.0]), torch.tensor([500.0, 800.0, 600.0])
    lone = torch.tensor([0.0]), torch.tensor([500.0])

    def ask(query: float, keys: Tensor, values: Tensor) -> float:
        return float(answer(query, keys, values, default=-100.0, far=4.0))

    away = ask(100.0, *table)
    assert abs(away - 600) > 1, "far from all keys it answers with the nearest value"
    assert abs(away + 100) < 1, f"far from all keys it answers {away:.0f}, not -100"
    near = ask(0.0, *lone)
    assert near > 499, f"at the only key it answers {near:.0f}: the default weighs in"
    between = ask(4.0, *lone)
    assert abs(between - 200) < 1, f"at distance `far` it gives {between:.0f}, not 200"
    among = ask(3.0, *table)
    assert abs(among - 790.7) < 1, f"at 3, among three, it gives {among:.0f}, not 791"
    step = ask(3.99, *lone) - ask(4.01, *lone)
    assert 0 < step < 50, "it jumps at distance `far`; the change should be smooth"
    return "right"


def grade_temperature(temperature: float) -> str:
    """Grade the temperature at which the nearest of three keys gets a weight of 0.9.

    The keys are 0, 2 and 6, the query is 3.
    """

    def weight(temperature: float, others: int = 2) -> float:
        gap = -0.5 * (3 - 0) ** 2 - -0.5 * (3 - 2) ** 2
        return 1 / (1 + others * math.exp(gap / temperature))

    assert temperature > 0, "a temperature is positive: check the sign of the gap"
    if abs(weight(temperature) - 0.9) < 1e-3:
        return "right"
    assert abs(weight(1 / temperature) - 0.9) > 1e-3, (
        "that is the scale, 1 over the temperature"
    )
    assert abs(weight(temperature, others=1) - 0.9) > 1e-3, (
        "two other keys share the rest, not one"
    )
    raise AssertionError(f"the nearest key gets a weight of {weight(temperature):.4f}")
