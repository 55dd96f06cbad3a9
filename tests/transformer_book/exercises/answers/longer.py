"""Answers to the exercises of *Longer*: right ones, and wrong ones."""

from transformer_book import grade_slot, grade_slower_base


def slower_base(base, factor, head_dim):
    return base * factor ** (head_dim / (head_dim - 2))


def slot(token, sinks, window):
    return token if token < sinks else sinks + (token - sinks) % window


def back_and_forth(token, sinks, window):
    at = (token - sinks) % (2 * window)
    return token if token < sinks else sinks + min(at, 2 * window - 1 - at)


def all_over_the_window(token, sinks, window):
    return token if token < sinks else sinks + (token - sinks) % max(window - 1, 1)


RIGHT = {grade_slower_base: slower_base, grade_slot: slot}
WRONG = {
    grade_slower_base: {
        "that is the old base": lambda base, factor, head_dim: base,
        "2.24 times as slowly, not 5 times": lambda b, f, h: b * f,
        "2.92 times as slowly, not 5 times": lambda b, f, h: b * f ** (h / (h - 1)),
    },
    grade_slot: {
        "it takes the place of sink 0": lambda t, s, w: t % (s + w),
        "it takes the place of token 4": back_and_forth,
        "there is no slot 5": lambda token, sinks, window: token,
        "the oldest that is no sink is": lambda t, s, w: min(t, s + w - 1),
        "and others are free": all_over_the_window,
    },
}
