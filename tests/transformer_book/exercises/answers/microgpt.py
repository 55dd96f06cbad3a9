"""Answers to the exercises of *A GPT in plain Python*: right and wrong ones."""

import math

from transformer_book import grade_saved, grade_tanh
from transformer_book.microgpt import Scalar


def tanh(number):
    value = math.tanh(number.value)
    return Scalar(value, (number,), (1 - value**2,))


def of_the_input(number):
    return Scalar(math.tanh(number.value), (number,), (1 - number.value**2,))


def sine(number):
    return Scalar(math.sin(number.value), (number,), (math.cos(number.value),))


def saved(d, v, s):
    return s * (s - 1) // 2 * (12 * d**2 + d * v)


RIGHT = {grade_tanh: tanh, grade_saved: saved}
WRONG = {
    grade_tanh: {
        "that of another y": of_the_input,
        "the gradient is lost": lambda number: Scalar(math.tanh(number.value)),
        "a float knows no gradient": lambda number: math.tanh(number.value),
        "the value is wrong": sine,
    },
    grade_saved: {
        "reading again": lambda d, v, s: s * (s + 1) // 2 * (12 * d**2 + d * v),
        "add them all up": lambda d, v, s: (s - 1) * (12 * d**2 + d * v),
        "one matrix is missing": lambda d, v, s: s * (s - 1) // 2 * 12 * d**2,
        "wrong for D=16": lambda d, v, s: s * 12 * d**2,
    },
}
