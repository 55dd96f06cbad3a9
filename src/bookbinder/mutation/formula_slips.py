"""Slips in formulas: a macro misspelled or another one, another letter."""

import re
from random import Random

from bookbinder.mutation.lines import FORMULA, SPAN, Line, misspell, outside, put

__all__ = ["letter", "macro", "other_macro"]

_WORDS = re.compile(r"\\(?:text|operatorname|begin|end)\{[^{}]*\}")
_MACRO = re.compile(r"\\([A-Za-z]{2,})")
# What a hand takes for one another: functions, sums, signs and letters.
_ALIKE = [
    {"exp", "ln", "sin", "cos", "tanh"},
    {"sum", "prod", "max"},
    {"cdot", "times", "odot"},
    {"le", "ge", "ne", "approx"},
    {"tau", "omega", "theta", "beta", "eta", "delta", "phi"},
    {"sqrt", "exp"},
]
_LETTERS = "QKVAEXWTSHDdqkvaestihj"


def _in_formulas(line: Line, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Find what stands in the formulas of a line, and in no words of theirs."""
    if line.part == "formula":
        text = line.text
    else:
        bare = outside(line.text, SPAN)
        shown = [found.span() for found in FORMULA.finditer(bare)]
        text = "".join(
            sign if any(start < at < end - 1 for start, end in shown) else "\0"
            for at, sign in enumerate(line.text)
        )
    return list(pattern.finditer(outside(text, _WORDS)))


def macro(line: Line, chance: Random) -> str | None:
    """Misspell a macro."""
    found = _in_formulas(line, _MACRO)
    if not found:
        return None
    one = chance.choice(found)
    return misspell(line.text, one.start(1), one.end(1), chance)


def other_macro(line: Line, chance: Random) -> str | None:
    """Take another macro for one: a cosine for a sine."""
    others = {
        one: sorted(alike - {one[1]})
        for one in _in_formulas(line, _MACRO)
        for alike in _ALIKE
        if one[1] in alike
    }
    if not others:
        return None
    one = chance.choice(list(others))
    return put(line.text, one.start(1), one.end(1), chance.choice(others[one]))


def letter(line: Line, chance: Random) -> str | None:
    """Take another letter for one."""
    found = _in_formulas(line, re.compile(rf"(?<![\\A-Za-z])[{_LETTERS}](?![A-Za-z])"))
    if not found:
        return None
    one = chance.choice(found)
    others = _LETTERS.replace(one[0], "")
    return put(line.text, one.start(), one.end(), chance.choice(others))
