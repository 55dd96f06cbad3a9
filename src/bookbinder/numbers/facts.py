"""The numbers that runs, outputs and listings hold, each with the words of its line."""

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])(?P<number>[-−]?\d+(?:[,_]\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?)"
)
# "4 heads", "num_heads=4" and "heads = 4" give a number to a noun.
_COUNTED = re.compile(
    r"(?<![\w.])(?P<first>\d+) (?P<noun>[a-z]{3,})\b"
    r"|(?<![A-Za-z])(?P<name>[a-z_]{3,})\"?\s*[=:]\s*(?P<last>\d+)(?![\d.]|\s*[-+*/])"
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


class Phrase(NamedTuple):
    """A number that a run gives to a noun: ``num_heads=4``, ``4 heads``, four names."""

    noun: str
    value: float


def phrases(text: str) -> Iterator[Phrase]:
    """Give what a program or an output counts, by the nouns that it counts."""
    bare = re.sub(r"(?m)#.*$", "", text)
    yield from (Phrase("decimal", fact.places) for fact in facts(bare) if fact.places)
    for digits in re.findall(r"\b1e-(\d+)", bare):
        yield Phrase("decimal", float(digits))
    for found in _COUNTED.finditer(bare):
        value = float(found["first"] or found["last"])
        for noun in stems(re.findall(r"[a-z]+", found["noun"] or found["name"])[-1:]):
            yield Phrase(noun, value)
    with suppress(SyntaxError):
        for statement in ast.walk(ast.parse(text)):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target, length = statement.targets[0], _length(statement.value)
                if isinstance(target, ast.Name) and length and target.id[-1] == "s":
                    for noun in stems(target.id.split("_")[-1:]):
                        yield Phrase(noun, length)


def _length(value: ast.expr) -> int:
    """Count what a literal lists: a list, a dictionary, words that are split."""
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        starred = any(isinstance(each, ast.Starred) for each in value.elts)
        return 0 if starred else len(value.elts)
    if isinstance(value, ast.Dict):
        return len(value.keys) if all(value.keys) else 0
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        called, words = value.func, value.func.value
        if called.attr == "split" and isinstance(words, ast.Constant):
            return 0 if value.args else len(str(words.value).split())
    return 0
