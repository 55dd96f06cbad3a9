"""Count what the reason of a number lists: ``"Three ways": window, causal and all``.

A reason that is a list and nothing else names what is counted, so it has as many things
as the number says. Who changes the words and their quotation has to change it as well.
"""

import re

from bookbinder.numbers.numerals import MULTIPLES, Number

__all__ = ["listed_otherwise"]

_WORDS = 4  # of a thing in a list
# A reason that points somewhere, or that counts itself, is no list.
_POINTS = re.compile(
    r"\b(?:above|below|as|by|says?|counted|printed|of which|the same|one|two|three|four"
    r"|five|six|seven|eight|nine|ten)\b|[;:\[\]\d]",
)


def listed_otherwise(reason: str, number: Number) -> int:
    """Give how many things a reason lists, if it is not the number that it backs."""
    word = number.text.lower()
    if number.kind != "word" or word in MULTIPLES or _POINTS.search(reason):
        return 0
    things = re.split(r", (?:and |or )?" if ", and " in reason else r", | and ", reason)
    if len(things) < 2 or any(len(each.split()) > _WORDS for each in things):
        return 0
    return 0 if len(things) == number.value else len(things)
