"""Answers to the exercise of *The browser port*: a right one, and wrong ones."""

from transformer_book import grade_half


def half(bits):
    sign = -1 if bits >> 15 else 1
    exponent, fraction = bits >> 10 & 31, (bits & 1023) / 1024
    if exponent == 0:
        return sign * 2.0**-14 * fraction
    return sign * 2.0 ** (exponent - 15) * (1 + fraction)


def always_one_more(bits):
    sign = -1 if bits >> 15 else 1
    return sign * 2.0 ** ((bits >> 10 & 31) - 15) * (1 + (bits & 1023) / 1024)


RIGHT = {grade_half: half}
WRONG = {
    grade_half: {
        "the exponent is off by one": lambda bits: half(bits) * 2,
        "more than zeros": lambda bits: half(bits) if bits >> 10 & 31 else 0.0,
        "not 2 ** -15": lambda bits: half(bits) if bits >> 10 & 31 else half(bits) / 2,
        "no 1 is added": always_one_more,
        "the highest bit is the sign": lambda bits: half(bits & 0x7FFF),
        "an exponent above 0": lambda bits: half(bits & 0xFC00),
    }
}
