"""Answers to the exercise of *The browser port*: a right one, and wrong ones."""

from typing import Any

from transformer_book import grade_half


def half(bits: int) -> float:
    sign = -1 if bits >> 15 else 1
    exponent, fraction = bits >> 10 & 31, (bits & 1023) / 1024
    if exponent == 0:
        return sign * 2.0**-14 * fraction
    return sign * 2.0 ** (exponent - 15) * (1 + fraction)


def off_by_one(bits: int) -> float:
    return half(bits) * 2


def flushed(bits: int) -> float:
    return half(bits) if bits >> 10 & 31 else 0.0


def always_one_more(bits: int) -> float:
    sign = -1 if bits >> 15 else 1
    return sign * 2.0 ** ((bits >> 10 & 31) - 15) * (1 + (bits & 1023) / 1024)


def too_small(bits: int) -> float:
    return half(bits) if bits >> 10 & 31 else half(bits) / 2


def unsigned(bits: int) -> float:
    return half(bits & 0x7FFF)


def without_a_fraction(bits: int) -> float:
    return half(bits & 0xFC00)


RIGHT = {grade_half: half}
WRONG: dict[Any, dict[str, Any]] = {
    grade_half: {
        "the exponent is off by one": off_by_one,
        "more than zeros": flushed,
        "not 2 ** -15": too_small,
        "no 1 is added": always_one_more,
        "the highest bit is the sign": unsigned,
        "an exponent above 0": without_a_fraction,
    },
}
