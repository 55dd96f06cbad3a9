"""The numbers that runs, outputs and listings hold, each with the words of its line."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?P<number>[-−]?\d+(?:[,_]\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?)"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Words that stand beside any number.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
        a all an and are as at be by do each for from has have he if in into is it its
        no not of on one or other same so than that the then there these they this to we
        what where which while who with you our your was were will can may must only
        print self def return import tensor torch float int true false none range len
        about after again any both but every first last here how just more most over
        such their them those under up out when would like between
        """,
    )
)


@dataclass(frozen=True)
class Fact:
    """A number that a run states, to how many decimals, and the words beside it."""

    value: float
    places: int
    words: frozenset[str]


def stems(words: Iterable[str]) -> frozenset[str]:
    """Give what the singular and the plural of each word share."""
    lowered = {word.lower() for word in words if word.isalpha()} - _COMMON
    return frozenset(word.removesuffix("s") for word in lowered)


def facts(text: str) -> Iterator[Fact]:
    """Give the numbers of a program or of an output, line by line."""
    for line in text.splitlines():
        words = stems(_WORD.findall(line))
        for number in _NUMBER.findall(line):
            plain = re.sub(r"[,_]", "", number).replace("−", "-")
            yield Fact(float(plain), len(plain.partition(".")[2]), words)
