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
        "2.24 times as slowly, not 5 times": lambda base, factor, width: base * factor,
        "2.92 times": lambda base, factor, width: (
            base * factor ** (width / (width - 1))
        ),
    },
    grade_slot: {
        "place of sink 0": lambda token, sinks, window: token % (sinks + window),
        "it takes the place of token 4": back_and_forth,
        "there is no slot 5": lambda token, sinks, window: token,
        "no sink is": lambda token, sinks, window: min(token, sinks + window - 1),
        "and others are free": all_over_the_window,
    },
}
