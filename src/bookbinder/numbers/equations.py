r"""Recompute what a formula states in plain numbers: ``2 \ln 8 / 7 = 0.594``.

A side of an equation that holds numbers alone has a value; one with symbols has none.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\{?,\}?\d{3}(?!\d))*(?:\.\d+)?)|(?P<command>\\[a-zA-Z]+)"
    r"|(?P<sign>[-−+*/:^(){}!°_|]))"
)
_SPACE = re.compile(
    r"(?<=\\\\)\[[\d.]+em\]|\\[,;:!]|\\q?quad\b|(?<!\\)[&~]|\\(?:left|right|displaystyle)\b"
)
_RELATION = re.compile(
    r"=|\\approx\b|\\leq?\b|\\geq?\b|\\ne\b|\\to\b|\\leftarrow\b|[<>,;]|\\\\|\.\s*$"
)
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    **{r"\ln": math.log, r"\exp": math.exp, r"\sqrt": math.sqrt, r"\log": math.log},
    **{r"\sin": math.sin, r"\cos": math.cos, r"\tanh": math.tanh},
}
_CONSTANTS = {r"\pi": math.pi, "e": math.e, r"\infty": math.inf}
_FRACTIONS = {r"\frac", r"\tfrac", r"\dfrac"}


@dataclass(frozen=True)
class Side:
    """A side of an equation, or a formula alone, that has a value.

    ``step`` is the size of the last digit if it is one number as it is written, and
    0 if it is computed; ``equals`` is the side before it, if an equals sign stands
    between the two, and ``rounded`` says whether that sign is the wavy one.
    """

    start: int
    end: int
    value: float
    step: float
    equals: "Side | None" = None
    rounded: bool = False

    @property
    def holds(self) -> bool:
        """Say whether this side is the side before it, to the decimals that it shows.

        A whole number is exact, unless the sign says that it is not.
        """
        other = self.equals or self
        step = max(self.step, other.step)
        slack = step / 2 if step < 1 or self.rounded else 0.0
        return abs(self.value - other.value) <= slack + 1e-9 * abs(self.value)


def sides(formula: str) -> Iterator[Side]:
    """Give the sides of a formula that have a value, with their places in it."""
    before: Side | None = None
    sign, start = "", 0
    bare = _SPACE.sub(lambda match: " " * len(match[0]), formula.replace("$", " "))
    for left, right, following in [*_relations(bare), (len(bare), len(bare), "")]:
        piece, begin = _balanced(bare[start:left]), start
        value, text = evaluate(piece), piece.strip()
        begin += len(piece) - len(piece.lstrip())
        side = None
        if value is not None and math.isfinite(value):
            literal = re.fullmatch(r"[-−]?\d+(?:\.\d+)?", text)
            step = written_step(text) if literal else 0.0
            other = before if sign in ("=", r"\approx") else None
            end, rounded = begin + len(text), sign == r"\approx"
            side = Side(begin, end, value, step, other, rounded)
            if re.search(r"\d", text):
                yield side
        before, sign, start = side, following, right


def _balanced(piece: str) -> str:
    """Blank out a parenthesis that belongs to a list, as in (1, 0)."""
    while piece.count("(") != piece.count(")"):
        opened = piece.count("(") > piece.count(")")
        at = piece.find("(") if opened else piece.rfind(")")
        piece = piece[:at] + " " + piece[at + 1 :]
    return piece


def _relations(bare: str) -> Iterator[tuple[int, int, str]]:
    """Give where the sides end: at signs that stand in no braces."""
    for match in _RELATION.finditer(bare):
        before = bare[: match.start()]
        if before.count("{") == before.count("}"):
            yield match.start(), match.end(), match[0]


def written_step(digits: str) -> float:
    """Give the size of the last digit: 0.01 for 1.25."""
    mantissa, _, exponent = digits.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def evaluate(formula: str) -> float | None:
    """Give the value of a formula of numbers alone, and nothing for any other."""
    tokens: list[str] = []
    at = 0
    formula = formula.rstrip()
    while at < len(formula):
        match = _TOKEN.match(formula, at)
        if not match and re.match(r"\s*e(?=\s*\^)", formula[at:]):
            tokens.append("e")
            at += formula[at:].index("e") + 1
            continue
        if not match:
            return None
        tokens.append(re.sub(r"[{},]", "", match[0]) if match["number"] else match[0])
        at = match.end()
    reader = _Reader([token.strip() for token in tokens])
    try:
        value = reader.sum()
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if not reader.left else None


class _Reader:
    """Read a formula from left to right; what it cannot read is a ValueError."""

    def __init__(self, tokens: list[str]) -> None:
        self.left = tokens

    def _next(self, *wanted: str) -> str:
        if not self.left or (wanted and self.left[0] not in wanted):
            raise ValueError
        return self.left.pop(0)

    def sum(self) -> float:
        """Read terms and the signs between them."""
        value = self.product()
        while self.left and self.left[0] in "+-−":
            sign = self._next()
            value += self.product() if sign == "+" else -self.product()
        return value

    def product(self) -> float:
        """Read factors, with a sign of multiplication or without."""
        value = self.power()
        while self.left and self.left[0] not in ("+", "-", "−", ")", "}"):
            sign = self.left[0]
            if sign in (r"\cdot", r"\times", "/", ":", "*"):
                self._next()
            factor = self.power()
            value = value / factor if sign in ("/", ":") else value * factor
        return value

    def power(self) -> float:
        """Read a number and what is written above it."""
        value = self.atom()
        while self.left and self.left[0] in ("^", "°", "!"):
            sign = self._next()
            if sign == "°":
                value = math.radians(value)
            elif sign == "!":
                value = math.gamma(value + 1)
            else:
                value = value ** self.group()
                if isinstance(value, complex):
                    raise ValueError
        return value

    def group(self) -> float:
        """Read what braces hold; without braces, one digit or one thing."""
        if self.left and self.left[0] == "{":
            self._next("{")
            value = self.sum()
            self._next("}")
            return value
        if self.left and self.left[0].isdigit():  # \tfrac12 is a half
            digits = self._next()
            if len(digits) > 1:
                self.left.insert(0, digits[1:])
            return float(digits[0])
        return self.atom()

    def atom(self) -> float:
        """Read a number, what parentheses hold, a fraction or a function."""
        token = self._next()
        if re.fullmatch(r"[\d.]+", token):
            return float(token)
        if token in "-−+":
            return self.product() if token == "+" else -self.power()
        if token in ("(", "{"):
            value = self.sum()
            self._next(")" if token == "(" else "}")
            return value
        if token in _FRACTIONS:
            above = self.group()
            return above / self.group()
        if token == r"\log":
            self._next("_")
            base = self.group()
            return math.log(self.power(), base)
        if token == r"\sqrt":
            return math.sqrt(self.group() if self.left[:1] == ["{"] else self.atom())
        if token in _FUNCTIONS:
            return _FUNCTIONS[token](self.power())
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        raise ValueError
