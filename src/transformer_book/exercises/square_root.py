"""Graders of *Why divide by the square root*."""

import math
from collections.abc import Callable

from torch import Tensor

__all__ = ["grade_find_scale", "grade_unit_scale"]

_TOO_SHARP = "the weights have become 0 and 1: ask for less"
_Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def grade_find_scale(answer: Callable[[_Attend, int], float]) -> str:
    """Grade a function that finds the scale of an unknown attention.

    Args:
        answer: A function of an attention, of ``q``, ``k`` and ``v``, and of a width.
    """

    def attention(scale: float) -> _Attend:
        return lambda q, k, v: (scale * (q @ k.mT)).softmax(dim=-1) @ v

    for d in (4, 64):
        for scale in (1.0, d**-0.5, 1 / d, d**0.5, -0.25):
            try:
                got = float(answer(attention(scale), d))
            except (ArithmeticError, ValueError):  # of a weight of 0 or 1
                raise AssertionError(_TOO_SHARP) from None
            if math.isclose(got, scale, rel_tol=1e-3):
                continue
            weight = 1 / (1 + math.exp(-scale))
            slips = {
                "that is a weight, not a scale": weight,
                "that is the logarithm of a weight": math.log(weight),
                "that is the scale times d": scale * d,
                _TOO_SHARP: math.inf,
            }
            for message, value in slips.items():
                assert not math.isclose(abs(got), abs(value), rel_tol=1e-3), message
            raise AssertionError(f"{got:.4f} for a scale of {scale:.4f} at width {d}")
    return "right"


def grade_unit_scale(answer: Callable[[int, float, float], float]) -> str:
    """Grade the scale that brings scores to variance 1.

    Args:
        answer: A function of the width and of the variances of queries and keys.
    """
    for d, var_q, var_k in ((16, 1.0, 4.0), (64, 0.25, 9.0)):
        got = answer(d, var_q, var_k)
        variance = d * var_q * var_k
        if math.isclose(got, variance**-0.5, rel_tol=1e-5):
            continue
        slips = {
            "that takes the variances for 1": d**-0.5,
            "a factor changes the variance by its square": 1 / variance,
            "the variance of a product is not a sum": (d * (var_q + var_k)) ** -0.5,
            "that makes large scores larger": variance**0.5,
            "these are variances, not standard deviations": d**-0.5 / (var_q * var_k),
        }
        for message, value in slips.items():
            assert not math.isclose(got, value, rel_tol=1e-5), message
        raise AssertionError(f"the scores would have variance {got**2 * variance:.2f}")
    return "right"
