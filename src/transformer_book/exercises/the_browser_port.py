"""The grader of *The browser port*."""

from collections.abc import Callable

import torch

__all__ = ["grade_half"]


def grade_half(answer: Callable[[int], float]) -> str:
    """Grade the number that 16 bits of half precision stand for.

    Args:
        answer: A function of ``bits``.
    """
    finite = [bits for bits in range(0, 2**16, 5) if bits >> 10 & 31 < 31]
    patterns = torch.tensor(finite, dtype=torch.int32).to(torch.int16)
    numbers = patterns.view(torch.float16).tolist()
    got = [answer(bits) for bits in finite]
    pairs = list(zip(finite, got, numbers, strict=True))
    normal = [pair for pair in pairs if pair[0] >> 10 & 31 and pair[2] > 0]
    factors = {ours / theirs for _, ours, theirs in normal}
    assert factors not in ({2.0}, {0.5}), "the exponent is off by one"
    assert factors == {1.0}, "a number with an exponent above 0 is wrong"
    small = [pair for pair in pairs if 0 < pair[0] < 2**10]
    assert all(ours != 0 for _, ours, _ in small), (
        "with e = 0 there are more than zeros"
    )
    assert any(2 * ours != theirs for _, ours, theirs in small), (
        "with e = 0 the power is 2 ** -14, not 2 ** -15"
    )
    assert all(ours == theirs for _, ours, theirs in small), (
        "with e = 0 no 1 is added to the fraction"
    )
    assert all(ours == theirs for _, ours, theirs in pairs), (
        "the highest bit is the sign"
    )
    return "right"
