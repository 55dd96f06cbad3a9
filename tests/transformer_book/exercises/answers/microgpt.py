"""Answers to the exercises of *A GPT with no library at all*: right and wrong ones."""

import math
from typing import Any

from transformer_book import grade_saved, grade_tanh
from transformer_book.microgpt import Scalar


def tanh(number: Scalar) -> Scalar:
    value = math.tanh(number.value)
    return Scalar(value, (number,), (1 - value**2,))


def of_the_input(number: Scalar) -> Scalar:
    return Scalar(math.tanh(number.value), (number,), (1 - number.value**2,))


def forgetful(number: Scalar) -> Scalar:
    return Scalar(math.tanh(number.value))


def plain(number: Scalar) -> float:
    return math.tanh(number.value)


def sine(number: Scalar) -> Scalar:
    return Scalar(math.sin(number.value), (number,), (math.cos(number.value),))


def saved(d: int, v: int, s: int) -> int:
    return s * (s - 1) // 2 * (12 * d**2 + d * v)


RIGHT = {grade_tanh: tanh, grade_saved: saved}
WRONG: dict[Any, dict[str, Any]] = {
    grade_tanh: {
        "that of another y": of_the_input,
        "the gradient is lost": forgetful,
        "a float knows no gradient": plain,
        "the value is wrong": sine,
    },
    grade_saved: {
        "reading again": lambda d, v, s: s * (s + 1) // 2 * (12 * d**2 + d * v),
        "add them all up": lambda d, v, s: (s - 1) * (12 * d**2 + d * v),
        "one matrix is missing": lambda d, v, s: s * (s - 1) // 2 * 12 * d**2,
        "wrong for D=16": lambda d, v, s: s * 12 * d**2,
    },
}
