"""Hold the numbers in comments behind the code of runs against that code and its run.

A number is one of the statement, or a size, a length or a small value of what the
statement assigns or names. Some are held to more:

- ``B = S = 3`` are sizes of what is assigned, in the order of its axes, and those that
  variables of these names and the comments above in the block give; or of a module;
- ``21 -> 63`` leads to how many what is assigned has, from a number of the line;
- ``two axes`` and ``11 wide`` are said of what is assigned, ``head 0`` is an index, and
  ``0 is padding`` is the value that the code compares it with.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain as joined
from typing import NamedTuple

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.flows.sizes import SIZES
from bookbinder.numbers.numerals import COUNTS, PARTS
from bookbinder.reading.pages import Chain, Page, Problem
from bookbinder.reading.seen import Noted, Remark, Seen, Shape, remarks

__all__ = ["said_sizes", "spoken_number_problems"]

_LETTER = "|".join(sorted(SIZES, key=len, reverse=True))
_EQUAL = re.compile(rf"\b(?P<letters>(?:(?:{_LETTER}) = )+)(?P<size>\d+)\b")
_ARROW = re.compile(r"\b(?P<old>\d+) (?:->|→) (?P<new>\d+)\b")
_MEANS = re.compile(r"(?P<value>\d+) is [a-z]")
_LINK = re.compile(r"https?://\S+")
_COUNT = "|".join(["one", "twice", *COUNTS])
_WORDS = {"one": 1.0, "twice": 2.0} | COUNTS | PARTS
# "The third row" counts rows; GPT-2 is a name, and 3.11.2 a version.
_NUMBER = re.compile(
    rf"""
    (?<![\w.^])(?<![A-Za-z]-)
    (?P<digits>\d+(?:,\d{{3}})*(?:\.\d+)?(?:e-?\d+)?)(?!\d|[.,]\d)
    | (?<!-)\b(?P<word>{_COUNT}|half|(?<=\ba\ )(?:{"|".join(PARTS)}))\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.;:!?](?:\s|$)")
_AXES = {"axes", "axis", "dimensions", "dims"}
_INDEXED = re.compile(
    r"(?:batch|block|column|feature|head|key|layer|position|query|row|sequence|step"
    r"|token)s?"
)
# Which letter counts what.
_COUNTED = {"heads": "H", "layers": "L"}


class _Number(NamedTuple):
    """A number of a comment, and the words next to it in its clause, nearest first."""

    text: str
    value: float
    digits: bool
    before: list[str]
    after: list[str]


def _numbers(text: str) -> Iterator[_Number]:
    for found in _NUMBER.finditer(text):
        left = _CLAUSE.split(text[: found.start()].lower())[-1]
        right = _CLAUSE.split(text[found.end() :].lower())[0]
        digits, word = found["digits"], (found["word"] or "").lower()
        value = float(digits.replace(",", "")) if digits else _WORDS[word]
        before = re.findall("[a-z]+", left)[::-1]
        after = re.findall("[a-z]+", right)
        yield _Number(found[0], value, bool(digits), before, after)


def spoken_number_problems(page: Page, seen: Mapping[int, list[Seen]]) -> list[Problem]:
    """Find numbers in comments behind code that neither the code nor its run has.

    Args:
        page: The page.
        seen: What each chain had after its lines, by the first line of the chain.
    """
    problems: list[Problem] = []
    for chain in page.chains:
        ran = seen.get(chain.line, [])
        comments = remarks(chain)
        for remark in comments:
            noted = [
                each
                for each in ran
                if isinstance(each, Noted) and each.line == remark.last
            ]
            if noted:
                line = _Line(remark, noted, ran, _compared(chain, remark))
                reason = line.wrong(said_sizes(remark, comments))
                if reason:
                    problems.append(Problem(page.path, remark.line, reason))
    return problems


def said_sizes(remark: Remark, comments: Iterable[Remark]) -> dict[str, int]:
    """Give the sizes that the comments above in the block say of letters: ``B = 3``."""
    return {
        letter: size
        for each in comments
        if each.block == remark.block and each.line < remark.line
        for letter, size in _sizes(each.text)
    }


def _sizes(text: str) -> Iterator[tuple[str, int]]:
    for equal in _EQUAL.finditer(text):
        for letter in equal["letters"].split(" = ")[:-1]:
            yield letter, int(equal["size"])


def _compared(chain: Chain, remark: Remark) -> set[object]:
    """Give the numbers that the chain compares with what a statement assigns."""
    found: set[object] = set()
    for block in chain.blocks:
        with suppress(SyntaxError):
            for node in ast.walk(ast.parse(block.code)):
                match node:
                    case ast.Compare(
                        left=ast.Name(id=name),
                        ops=[ast.Eq() | ast.NotEq()],
                        comparators=[ast.Constant(value=int(value))],
                    ) if name in remark.assigned:
                        found.add(value)
                    case _:
                        pass
    return found


class _Line:
    """A comment, its statement, and what there was after it, each time.

    Args:
        remark: The comment and its statement.
        noted: What there was after the statement.
        ran: All that the chain has left.
        compared: What the code compares with what is assigned.
    """

    def __init__(
        self,
        remark: Remark,
        noted: list[Noted],
        ran: Iterable[Seen],
        compared: set[object],
    ) -> None:
        self.remark, self.compared = remark, compared
        self.assigned = [*_shapes(noted, remark.assigned)]
        self.named = [*_shapes(noted, remark.named)]
        self.written = [*_literals(remark.node)]
        # Of what is only named, the number that it is, or how long it is.
        self.small = {
            number
            for each in noted
            for name in remark.named
            for number in each.numbers.get(name, [])[
                : None if name in remark.assigned else 1
            ]
        }
        self.sizes = [*joined.from_iterable(self.named)]
        self.known = noted[0].sizes
        integers = noted[0].numbers.items()
        self.variables = {
            n: int(v[0]) for n, v in integers if n in SIZES and len(v) == 1
        }
        self.letters = [
            (letter, size) for each in ran for letter, size in each.sizes.items()
        ]

    def wrong(self, said: Mapping[str, int]) -> str:
        """Say what is wrong with the comment; what is right is asked no more."""
        text = _LINK.sub("", self.remark.text)
        for shape in SHAPE.finditer(text):
            if "," in shape[0] and re.search("[A-Z]", shape[0]):
                text = text.replace(shape[0], "")
        reason = self._wrong_sizes(text, said)
        text = _EQUAL.sub("", text)
        for arrow in _ARROW.finditer(text):
            reason = reason or self._wrong_arrow(int(arrow["old"]), int(arrow["new"]))
        means = _MEANS.match(text)
        value = int(means["value"]) if means else None
        if not reason and self.compared and value not in {None, *self.compared}:
            other = " and ".join(sorted(map(str, self.compared)))
            return f"this says {value}, but the code asks for {other}"
        return reason or self._wrong_numbers(text)

    def _wrong_sizes(self, text: str, said: Mapping[str, int]) -> str:
        known = self.variables | dict(said)
        asked: list[int] = []
        for letter, size in _sizes(text):
            if known.get(letter, size) != size:
                return f"this says {letter} = {size}, but {letter} is {known[letter]}"
            # A module may have other sizes, but not of what is assigned.
            if self.known.get(letter) != size:
                asked.append(size)
        if asked and not any(_in_order(asked, shape) for shape in self.assigned):
            wanted = ", ".join(map(str, asked))
            if self.assigned or not {*asked} <= {*self.written, *self.small}:
                return f"this says {wanted}, in this order: {self._had()}"
        return ""

    def _wrong_arrow(self, old: int, new: int) -> str:
        backing = {*self.written, *self.small, *self.sizes}
        right = {old, new} <= backing and (
            not self.assigned
            or any(
                shape[:1] == (new,) or (old not in shape and shape[-1:] == (new,))
                for shape in self.assigned
            )
        )
        return "" if right else f"this says {old} -> {new}: {self._had()}"

    def _wrong_numbers(self, text: str) -> str:
        numbers = [*_numbers(text)]
        # One is a word like any other.
        asked = [number for number in numbers if number.text.lower() != "one"]
        wrong = [number for number in asked if not self._backed(number)]
        # One forward and two backward are three.
        parts = [number.value for number in numbers]
        adds = len(parts) > 1 and min(parts) >= 1 and sum(parts) in self.written
        if not wrong or adds:
            return ""
        return f"this says {wrong[0].text}: {self._had()}"

    def _backed(self, number: _Number) -> bool:
        value = number.value
        beside = [*number.before[:1], ""][0]
        after = [*number.after[:1], ""][0]
        if after in _AXES and self.named:
            return value in {len(shape) for shape in self.assigned or self.named}
        if after == "wide" and self.assigned:
            return value in {shape[-1] for shape in self.assigned if shape}
        if _INDEXED.fullmatch(beside) and number.digits:
            begins = value == 0 and [*number.after[:1]] == ["to"]
            return begins or value in {*self._indices(beside)}
        backing = {*self.written, *self.small, *self.sizes}
        if beside == "to" and any(map(_INDEXED.fullmatch, number.before[1:2])):
            return value + 1 in backing
        if after in _COUNTED and (_COUNTED[after], value) in self.letters:
            return True
        part = 0 < value < 1 and round(1 / value) in self.written
        return part or value in backing

    def _indices(self, what: str) -> Iterator[float]:
        """Give what can be an index: not a size, but the last place in what is made."""
        yield from self.small
        if self.remark.assigned:
            yield from (size - 1 for size in self.sizes)
        width = max(self.known.get("d_k", 1), 1)
        for index in self.written:
            if isinstance(index, int):
                yield index
                # Row d_k is feature 0 of head 1.
                yield from [index // width] * what.startswith("head")
                yield from [index % width] * what.startswith("feature")

    def _had(self) -> str:
        written = dict.fromkeys(map(str, self.written))
        shapes = dict.fromkeys(map(str, self.assigned or self.named))
        what = "what is assigned" if self.assigned else "what is named"
        had = f", and {what} is {' or '.join([*shapes][:3])}" if shapes else ""
        return (
            f"its line has {', '.join(written) or 'no number'}{had} "
            "in the run; what no run can know is for the prose"
        )


def _shapes(noted: Iterable[Noted], names: Iterable[str]) -> Iterator[Shape]:
    for each in noted:
        for name in names:
            yield from each.values.get(name, [])


def _in_order(sizes: list[int], shape: Shape) -> bool:
    axes = iter(shape)
    return all(size in axes for size in sizes)


def _literals(node: ast.AST) -> Iterator[int | float]:
    """Give the numbers that a statement has, and what it makes of them alone."""
    for each in ast.walk(node):
        inner = [*ast.walk(each)] if isinstance(each, ast.BinOp) else [each]
        plain = all(
            isinstance(one, (ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop))
            or (isinstance(one, ast.Constant) and type(one.value) in (int, float))
            for one in inner
        )
        if plain and isinstance(each, (ast.BinOp, ast.Constant)):
            with suppress(Exception):
                yield eval(compile(ast.Expression(each), "", "eval"))
