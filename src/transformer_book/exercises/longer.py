"""Graders of *Longer*."""

from collections.abc import Callable

from tested_transformer.rotary_scaling import plain_rates

__all__ = ["grade_slot", "grade_slower_base"]


def grade_slower_base(answer: Callable[[float, float, int], float]) -> str:
    """Grade the base with which the slowest pair turns ``factor`` times as slowly.

    Args:
        answer: A function of the old base, the factor and the width of a head.
    """
    for base, factor, head_dim in (
        (100.0, 5.0, 4),
        (10_000.0, 8.0, 16),
        (500.0, 1.0, 6),
    ):
        got = float(answer(base, factor, head_dim))
        assert got > 0, f"a base of {got:g} is impossible: it must be positive"
        assert got != base or factor == 1, "that is the old base: no pair turns slower"
        before, after = (plain_rates(head_dim, base=value)[-1] for value in (base, got))
        right = abs(before / after / factor - 1) < 1e-6
        assert right, (
            f"from base {base:g} to {got:g}, the slowest pair of a head of {head_dim} "
            f"turns {before / after:.3g} times as slowly, not {factor:g} times"
        )
    return "right"


def grade_slot(answer: Callable[[int, int, int], int]) -> str:
    """Grade where a token lies in a rolling cache.

    Args:
        answer: A function of the number of the token, of sinks, and of the window.
    """
    for sinks, window in ((2, 3), (0, 4), (1, 1), (4, 7)):
        slots = sinks + window
        held = dict[int, int]()
        for token in range(3 * slots):
            got = answer(token, sinks, window)
            where = f"token {token}, {sinks} sinks, a window of {window}"
            assert 0 <= got < slots, f"{where}: there is no slot {got}, only {slots}"
            if token < slots:
                assert got not in held, (
                    f"{where}: slot {got} is token {held[got]}'s, and others are free"
                )
            else:
                gone = held[got]
                assert gone >= sinks, f"{where}: it takes the place of sink {gone}"
                oldest = token - window
                assert gone == oldest, (
                    f"{where}: it takes the place of token {gone}; the oldest that is "
                    f"no sink is {oldest}"
                )
            held[got] = token
    return "right"
