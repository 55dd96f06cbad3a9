"""Read the numbers of a page as a reader meets them: in digits, in words, in formulas.

Runs, outputs, listings and comments are left out: they are checked as what they are.
What is left is prose, lists, tables, call-outs, headings and text alternatives.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bookbinder.numbers.equations import sides, written_step
from bookbinder.reading.pages import Page
from bookbinder.reading.prose import front_matter

_FENCE = re.compile(r"^`{3,}")
_HEADING = re.compile(r"^#{1,6} ")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_FRAME = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_FORMULA = re.compile(r"(?<!\\)(\${1,2})(?!\s*\$).+?(?<!\\)\1")
_TARGET = re.compile(r"(?<=\])\([^()\s]*(?:\([^()]*\)[^()\s]*)*\)")

_SMALL = [
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
_TENS = [
    *("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
]
COUNTS: dict[str, float] = {
    **{word: value for value, word in enumerate(_SMALL, start=2)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
"""What a word counts, from two on: one is a word like any other."""
PARTS = {
    **{"half": 1 / 2, "halves": 1 / 2, "third": 1 / 3, "thirds": 1 / 3},
    **{"quarter": 1 / 4, "quarters": 1 / 4, "fifth": 1 / 5, "fifths": 1 / 5},
    **{"sixth": 1 / 6, "sixths": 1 / 6, "eighth": 1 / 8, "eighths": 1 / 8},
    **{"tenth": 1 / 10, "tenths": 1 / 10, "sixteenth": 1 / 16, "hundredth": 1 / 100},
    **{"thousandth": 1e-3, "millionth": 1e-6, "billionth": 1e-9, "trillionth": 1e-12},
}
"""What part of a whole a word names."""
_TIMES = {
    **{"twice": 2, "thrice": 3, "double": 2, "doubles": 2, "doubled": 2},
    **{"doubling": 2, "halve": 1 / 2, "halves": 1 / 2, "halved": 1 / 2},
    **{"halving": 1 / 2, "triple": 3, "triples": 3, "tripled": 3, "tenfold": 10},
    **{"dozen": 12, "quadruple": 4, "quadruples": 4, "quadrupled": 4},
}
MULTIPLES = {*PARTS, *_TIMES}
"""The words that measure, and count nothing: twice, half."""
_SCALES = {
    **{"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9},
    **{"hundreds": 1e2, "thousands": 1e3, "millions": 1e6, "billions": 1e9},
}
_SIGNS = {"½": 1 / 2, "⅓": 1 / 3, "⅔": 2 / 3, "¼": 1 / 4, "¾": 3 / 4, "⅛": 1 / 8}

_NUMBER = re.compile(
    rf"""
    (?<![\w.^]) (?P<ratio> 1/\d+ ) (?![\w/])
    | (?<![A-Za-z0-9_.]) (?<![A-Za-z]-)
      (?P<digits> (?:(?<![\w)])[-−])?
        (?:\d+ (?:[ ,]\d{{3}}(?!\d))* | (?=\.\d)) (?:\.\d+)* (?:e-?\d+)? )
      (?: \s (?P<scale> {"|".join(_SCALES)} )\b )?
    | (?P<name> (?<![/\w])[A-Za-z]+-?\d[\w.]*(?<!\.) (?![/\w]) )
    | \b(?P<word> (?:{"|".join(_TENS)})-(?:{"|".join(_SMALL[:8])})
        | (?:(?:{"|".join(COUNTS)})[ -])?(?:{"|".join([*PARTS, *_SCALES])})
        | {"|".join([*COUNTS, *_TIMES])} )\b
    | (?P<sign> [{"".join(_SIGNS)}] )
    """,
    re.VERBOSE | re.IGNORECASE,
)
# In code and formulas; an include, a space of 1.1em and a version are no numbers.
_LITERAL = re.compile(
    r"(?<![A-Za-z0-9_.])\d+(?:\{?,\}?\d{3}(?!\d))*(?:\.\d+)?(?:e-?\d+)?"
    r"(?!\d|\.\d|em\]|<-)"
)
_CONSTANT = re.compile(r"\\text\{[^}]*\}|\[[\d.]+em\]|(?P<constant>\d)")
# "The third row" counts rows, "half precision" is a name: neither states a size.
_ORDINALS = {word for word in PARTS if word.endswith(("th", "rd"))}
_NAME = re.compile(r"[ -]precision\b|/")
_WORD = re.compile(r"[A-Za-z][A-Za-z]+|[%°×]|\b[A-Za-z]\b")
_CLAUSE = re.compile(r"[.;:!?](?:\s|$)")


class Number(NamedTuple):
    """A number that a reader meets.

    ``kind`` is ``digits``, ``word``, ``code``, ``formula`` if it stands in one,
    ``constant`` if it is a digit beside its symbols, ``name`` if it is part of a name,
    as in GPT-2; ``step`` is the size of its last digit; ``start`` and
    ``end`` say where it stands in its passage; ``before`` and ``after`` are the words
    next to it, nearest first; ``proved`` says whether the equation that it stands in
    holds, if that can be computed.
    """

    text: str
    value: float
    step: float
    kind: str
    start: int
    end: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    proved: bool | None = None


@dataclass
class Passage:
    """A paragraph, a list item, a heading, or a row of a table.

    ``section`` is the line of the heading that it stands under, ``part`` that of the
    ``##`` heading, ``title`` what the heading says; ``labels`` are the words at the
    head of the columns, in a row below them.
    """

    text: str
    line: int
    section: int
    part: int
    title: str
    labels: tuple[str, ...] = ()
    numbers: list[Number] = field(default_factory=list[Number])

    @property
    def row(self) -> bool:
        """Whether it is a row of a table."""
        return self.text.startswith("|")


def passages(page: Page) -> list[Passage]:
    """Give every piece of prose of a page with its numbers, in order."""
    found: list[Passage] = []
    section, part, title = 0, 0, ""
    columns: tuple[str, ...] = ()
    for line, text in _pieces(page):
        if _HEADING.match(text):
            section, title = line, text.lstrip("# ")
            part = part if text.startswith("###") else line
        passage = Passage(text, line, section, part, title)
        if not passage.row or not page.lines[line - 2].strip():
            columns = ()
        passage.labels = columns
        if passage.row and not columns:
            columns = tuple(_words(text)) or ("",)
        passage.numbers = sorted(_numbers(text), key=lambda number: number.start)
        found.append(passage)
    return found


def _pieces(page: Page) -> Iterator[tuple[int, str]]:
    """Join the lines of each paragraph; each item, row and heading stands alone."""
    piece: list[str] = []
    first, ticks = 0, ""
    begin = front_matter(page)
    for number, line in enumerate([*page.lines[begin:], ""], start=begin + 1):
        fence = _FENCE.match(line)
        fenced = bool(ticks or fence)
        if ticks and line.strip() == ticks:
            ticks = ""
        elif fence and not ticks:
            ticks = fence[0]
        alone = bool(_HEADING.match(line) or line.startswith(("|", "///")))
        hidden = fenced or line.startswith("<!--") or _FRAME.match(line)
        if piece and (hidden or alone or not line.strip() or _ITEM.match(line)):
            yield first, " ".join(piece)
            piece = []
        if hidden or not line.strip():
            continue
        if alone:
            yield number, line.strip()
            continue
        if not piece:
            first = number
        piece.append(line.strip())


def plain(text: str) -> str:
    """Take off what makes words bold or slanted, and quotation marks."""
    return re.sub(r'[*"]', "", text)


def _numbers(text: str) -> Iterator[Number]:
    """Give the numbers of a piece of prose."""
    bare = _TARGET.sub(lambda match: " " * len(match[0]), text)
    for start, end in [match.span() for match in _CODE.finditer(bare)]:
        bare = bare[:start] + " " * (end - start) + bare[end:]
        yield from _in_code(text, start, end)
    for start, end in [match.span() for match in _FORMULA.finditer(bare)]:
        bare = bare[:start] + "\0" * (end - start) + bare[end:]
        yield from _in_formula(text, start, end)
    item = _ITEM.match(text)
    for match in _NUMBER.finditer(bare, item.end() if item else 0):
        if not _is_only_a_name(match, bare):
            yield _read(match, text, bare)


def _is_only_a_name(match: re.Match[str], bare: str) -> bool:
    word = (match["word"] or "").lower()
    before, after = bare[: match.start()], bare[match.end() :]
    if before.lower().endswith("every "):
        return False
    if word in ("half", "double") and _NAME.match(after):
        return True
    if word not in _ORDINALS:
        return False
    counted = re.match(r"(?:\s+|-)(?!(?:of|as|to|more|less|and|in)\b)\w", after)
    return bool(counted) or not re.search(r"\b(?:an?|one)\s+$", before, re.IGNORECASE)


def _in_formula(text: str, start: int, end: int) -> Iterator[Number]:
    """Give what has a value in a formula, and what a symbol is multiplied by.

    The single digits of a formula with symbols, as in $d_k + 1$, are its constants.
    """
    beside = tuple(reversed(_words(text[:start]))), tuple(_words(text[end:]))
    known: list[tuple[int, int]] = []
    proofs = list(sides(text[start:end]))
    for side in proofs:
        first, last = start + side.start, start + side.end
        known.append((first, last))
        states = [side.holds] if side.equals else []
        states += [other.holds for other in proofs if other.equals is side]
        proved = all(states) if states else None
        shown = text[first:last]
        yield Number(
            shown, side.value, side.step, "formula", first, last, *beside, proved
        )
    for number in _in_code(text, start, end, "formula"):
        inside = any(first <= number.start < last for first, last in known)
        if not inside and len(number.text) > 1:
            known.append((number.start, number.end))
            yield number
    for match in _CONSTANT.finditer(text[start:end]):
        at = start + match.start()
        if match["constant"] and not any(a <= at < b for a, b in known):
            one = match["constant"]
            yield Number(one, float(one), 1.0, "constant", at, at + 1, *beside)


def _in_code(text: str, start: int, end: int, kind: str = "code") -> Iterator[Number]:
    """Give the numbers of a piece of code."""
    beside = tuple(reversed(_words(text[:start]))), tuple(_words(text[end:]))
    for match in _LITERAL.finditer(text[start:end]):
        digits = re.sub(r"[{},]", "", match[0])
        at, to = start + match.start(), start + match.end()
        step = written_step(digits)
        yield Number(match[0], float(digits), step, kind, at, to, *beside)


def _read(match: re.Match[str], text: str, bare: str) -> Number:
    """Read one number of the prose."""
    start, end = match.span()
    step = 0.0
    if match["ratio"]:
        value = 1 / float(match["ratio"][2:])
    elif match["digits"]:
        digits = re.sub(r"[ ,]", "", match["digits"]).replace("−", "-")
        scale = _SCALES[match["scale"].lower()] if match["scale"] else 1.0
        version = digits.count(".") > 1  # or a section: it has no size
        value = float("nan" if version else digits) * scale
        step = 0.0 if version else written_step(digits) * scale
    elif match["sign"]:
        value = _SIGNS[match["sign"]]
    elif match["name"]:
        value = float("nan")
    else:
        value = _worded(match["word"].lower())
    left, right = _CLAUSE.split(bare[:start])[-1], _CLAUSE.split(bare[end:])[0]
    kind = "digits" if match["digits"] or match["ratio"] else "word"
    if match["name"]:
        kind = "name"
    beside = tuple(reversed(_words(left))), tuple(_words(right))
    return Number(text[start:end], value, step, kind, start, end, *beside)


def _worded(word: str) -> float:
    """Give the value of words: forty-eight, four hundred, two thirds."""
    known = COUNTS | _TIMES | PARTS | _SCALES
    first, *others = re.split(r"[ -]", word)
    if first in _TENS and others and others[0] in _SMALL:
        return known[first] + known[others[0]]
    return known[first] * (known[others[0]] if others else 1)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
