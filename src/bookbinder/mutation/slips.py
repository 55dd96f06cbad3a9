"""Slips on a page: each changes one line, in one place, as a hand might.

A page is cut into its kinds of lines. For each kind of slip the places where it could
happen are listed, and chance chooses among them, with a seed. None of this looks at
what is checked.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bookbinder.mutation.formula_slips import letter, macro, other_macro
from bookbinder.mutation.lines import FORMULA, SPAN, Line, cut, misspell, outside, put

__all__ = ["KINDS", "MEANT", "Slip", "slips"]

_LINK = re.compile(r"\]\([^)]*\)")
_NUMBER = re.compile(r"(?<![\w.,])[-−]?\d[\d,]*(?:\.\d+)?(?![\w])")
_SIZE = r"(?:[A-Z](?:_\w+)?|d_\w+|num_\w+|\d+)"
_SHAPE = re.compile(rf"(?<=[(\[])({_SIZE}(?:, {_SIZE})+),?(?=[)\]])")
_LABEL = re.compile(r"\"([^\"]*[A-Za-z]{3}[^\"]*)\"|\|([^|]*[A-Za-z]{3}[^|]*)\|")
_YEAR = re.compile(r"(?:1[89]|20)\d\d$")


@dataclass(frozen=True)
class Slip:
    """One slip: line ``line`` of a page, counted from 1, becomes ``after``."""

    page: str
    kind: str
    line: int
    before: str
    after: str

    def made_in(self, lines: list[str]) -> list[str]:
        """Give the lines of the page with the slip in them."""
        return [*lines[: self.line - 1], self.after, *lines[self.line :]]


Change = Callable[[Line, Random], str | None]


def slips(pages: dict[str, list[str]], count: int, seed: int) -> list[Slip]:
    """Choose slips, as many of each kind, and of each kind anywhere in the book.

    Args:
        pages: The lines of each page, by its name.
        count: How many slips.
        seed: The same seed gives the same slips in the same pages.
    """
    chance = Random(seed)
    by_page = {name: list(cut(lines)) for name, lines in sorted(pages.items())}
    chosen: list[Slip] = []
    queues: dict[str, list[tuple[str, Line]]] = {}
    for kind, (parts, _) in KINDS.items():
        queues[kind] = [
            (name, line)
            for name, lines in by_page.items()
            for line in lines
            if line.part in parts
        ]
        chance.shuffle(queues[kind])
    while len(chosen) < count and any(queues.values()):
        for kind, queue in queues.items():
            while queue:
                name, line = queue.pop()
                after = KINDS[kind][1](line, chance)
                if after is not None and after != line.text:
                    chosen.append(Slip(name, kind, line.number, line.text, after))
                    break
    return chosen[:count]


def _other_digit(text: str, found: re.Match[str], chance: Random) -> str:
    """Change one digit of a number; never a leading one to zero."""
    digits = [i for i in range(found.start(), found.end()) if text[i].isdigit()]
    at = chance.choice(digits)
    others = [d for d in "123456789" if d != text[at]]
    return put(text, at, at + 1, chance.choice(others))


def _digit_of_an_output(line: Line, chance: Random) -> str | None:
    found = list(re.finditer(r"\d+(?:\.\d+)?", line.text))
    return _other_digit(line.text, chance.choice(found), chance) if found else None


def _number(line: Line, chance: Random) -> str | None:
    if line.section in ("Sources", "Where to go next"):
        return None  # of other works: their years and sections are not of this book
    bare = outside(line.text, SPAN, FORMULA, _LINK)
    bare = re.sub(r"^\s*\d+\.", lambda found: "\0" * len(found[0]), bare)
    found = [each for each in _NUMBER.finditer(bare) if not _YEAR.match(each[0])]
    return _other_digit(line.text, chance.choice(found), chance) if found else None


def _shape(line: Line, chance: Random) -> str | None:
    found = list(_SHAPE.finditer(line.text))
    if not found:
        return None
    one = chance.choice(found)
    sizes = one[1].split(", ")
    pairs = [i for i in range(len(sizes) - 1) if sizes[i] != sizes[i + 1]]
    if not pairs:
        return None
    at = chance.choice(pairs)
    if chance.random() < 0.3 and len(sizes) > 2:
        del sizes[at]
    else:
        sizes[at], sizes[at + 1] = sizes[at + 1], sizes[at]
    return put(line.text, one.start(1), one.end(1), ", ".join(sizes))


def _name(line: Line, chance: Random) -> str | None:
    names = [
        (found.start(1) + name.start(), found.start(1) + name.end())
        for found in SPAN.finditer(line.text)
        for name in re.finditer(r"[A-Za-z]\w{3,}", found[1])
    ]
    if not names:
        return None
    start, end = chance.choice(names)
    return misspell(line.text, start, end, chance)


def _marker(line: Line, chance: Random) -> str | None:
    start = line.text.index("pytest") if "pytest" in line.text else 4
    return chance.choice(
        ["", misspell(line.text, start, len(line.text.rstrip(">-")), chance)]
    )


def _fence(line: Line, chance: Random) -> str | None:
    info = line.text.removeprefix("```")
    other = ["", "~~~" + info]
    if info:
        infos = ["py", "text", "", "python", "console"]
        other += [f"```{each}" for each in infos if each != info]
    return chance.choice(other)


def _section(line: Line, chance: Random) -> str | None:
    found = re.match(r'--8<-- "[^":]+:([^":]+)"', line.text)
    return misspell(line.text, found.start(1), found.end(1), chance) if found else None


def _link(line: Line, chance: Random) -> str | None:
    links = re.finditer(r"\]\((?!https?:)([^)\s]+)\)", outside(line.text, SPAN))
    found = [each for each in links if re.search(r"\w{3}", each[1])]
    if not found:
        return None
    one = chance.choice(found)
    words = list(re.finditer(r"\w{3,}", one[1]))
    word = chance.choice(words)
    begin = one.start(1)
    return misspell(line.text, begin + word.start(), begin + word.end(), chance)


def _label(line: Line, chance: Random) -> str | None:
    found = list(_LABEL.finditer(line.text))
    if not found:
        return None
    label = chance.choice(found)
    words = list(re.finditer(r"[A-Za-z]{3,}", label[0]))
    word, begin = chance.choice(words), label.start()
    return misspell(line.text, begin + word.start(), begin + word.end(), chance)


def _name_of_one_letter(line: Line, chance: Random) -> str | None:
    found = [each for each in SPAN.finditer(line.text) if len(each[1]) == 1]
    found = [each for each in found if each[1].isalpha()]
    if not found:
        return None
    one = chance.choice(found)
    others = "abcdefghijklmnopqrstuvwxyzBCDHLQSTVX".replace(one[1], "")
    return put(line.text, one.start(1), one.end(1), chance.choice(others))


_SHOWN = {"prose", "heading", "table"}
KINDS: dict[str, tuple[set[str], Change]] = {
    "a digit of an output": ({"in text"}, _digit_of_an_output),
    "a shape in a text or table": (_SHOWN, _shape),
    "a shape in a diagram": ({"in mermaid"}, _shape),
    "a shape in an output": ({"in text"}, _shape),
    "a name": (_SHOWN, _name),
    "a marker": ({"marker"}, _marker),
    "a fence": ({"fence"}, _fence),
    "a section": ({"in py", "in js"}, _section),
    "a link": (_SHOWN, _link),
    "a number in prose": ({"prose", "heading"}, _number),
    "a number in a table": ({"table"}, _number),
    "a label in a diagram": ({"in mermaid"}, _label),
    "a macro of a formula": ({"formula", "prose", "table"}, macro),
    "another macro in a formula": ({"formula", "prose", "table"}, other_macro),
    "another letter in a formula": ({"formula", "prose", "table"}, letter),
    "a name of one letter": (_SHOWN, _name_of_one_letter),
}
# Who takes one letter or sign for another writes what could be meant. These slips are
# counted like all others, but no share of them is demanded.
MEANT = {
    *("another macro in a formula", "another letter in a formula"),
    "a name of one letter",
}
