"""Slips on a page: each changes one line, in one place, as a hand might.

A page is cut into its kinds of lines. For each kind of slip the places where it could
happen are listed, and chance chooses among them, with a seed. None of this looks at
what is checked.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["KINDS", "Slip", "slips"]

_FENCE = re.compile(r"```(?P<info>.*)$")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_FORMULA = re.compile(r"\$[^$]+\$")
_LINK = re.compile(r"\]\([^)]*\)")
_NUMBER = re.compile(r"(?<![\w.,])[-−]?\d[\d,]*(?:\.\d+)?(?![\w])")
_SIZE = r"(?:[A-Z](?:_\w+)?|d_\w+|num_\w+|\d+)"
_SHAPE = re.compile(rf"(?<=[(\[])({_SIZE}(?:, {_SIZE})+),?(?=[)\]])")
_LABEL = re.compile(r"\"([^\"]*[A-Za-z]{3}[^\"]*)\"|\|([^|]*[A-Za-z]{3}[^|]*)\|")
_MACRO = re.compile(r"\\([A-Za-z]{2,})")
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


@dataclass(frozen=True)
class _Line:
    """A line, what it is part of, and the heading of level 2 that it stands under."""

    number: int
    text: str
    part: str
    section: str


Change = Callable[[_Line, Random], str | None]


def slips(pages: dict[str, list[str]], count: int, seed: int) -> list[Slip]:
    """Choose slips, as many of each kind, and of each kind anywhere in the book.

    Args:
        pages: The lines of each page, by its name.
        count: How many slips.
        seed: The same seed gives the same slips in the same pages.
    """
    chance = Random(seed)
    cut = {name: list(_cut(lines)) for name, lines in sorted(pages.items())}
    chosen: list[Slip] = []
    queues: dict[str, list[tuple[str, _Line]]] = {}
    for kind, (parts, _) in KINDS.items():
        queues[kind] = [
            (name, line)
            for name, lines in cut.items()
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


def _cut(lines: list[str]) -> Iterator[_Line]:
    fence: str | None = None
    in_formula, section = False, ""
    for number, text in enumerate(lines, start=1):
        found = _FENCE.match(text)
        if fence is None and text.startswith("## "):
            section = text.removeprefix("## ")
        if found and fence is None:
            fence = found["info"].split(" ")[0]
            part = "fence"
        elif found:
            fence, part = None, "fence"
        elif fence is not None:
            hidden = fence == "mermaid" and text.strip().startswith("%%")
            part = "a note" if hidden else f"in {fence}"
        elif text.startswith("<!--"):
            part = "marker"
        elif text.strip() == "$$":
            in_formula, part = not in_formula, "fence of a formula"
        elif in_formula:
            part = "formula"
        elif text.startswith("|"):
            part = "table"
        elif text.startswith("#"):
            part = "heading"
        else:
            part = "prose" if text.strip() else "blank"
        yield _Line(number, text, part, section)


def _outside(text: str, *hidden: re.Pattern[str]) -> str:
    """Blot out what a slip should not hit; every place keeps its number."""
    for pattern in hidden:
        text = pattern.sub(lambda found: "\0" * len(found[0]), text)
    return text


def _put(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _other_digit(text: str, found: re.Match[str], chance: Random) -> str:
    """Change one digit of a number; never a leading one to zero."""
    digits = [i for i in range(found.start(), found.end()) if text[i].isdigit()]
    at = chance.choice(digits)
    others = [d for d in "123456789" if d != text[at]]
    return _put(text, at, at + 1, chance.choice(others))


def _digit_of_an_output(line: _Line, chance: Random) -> str | None:
    found = list(re.finditer(r"\d+(?:\.\d+)?", line.text))
    return _other_digit(line.text, chance.choice(found), chance) if found else None


def _number(line: _Line, chance: Random) -> str | None:
    if line.section in ("Sources", "Where to go next"):
        return None  # of other works: their years and sections are not of this book
    bare = _outside(line.text, _SPAN, _FORMULA, _LINK)
    bare = re.sub(r"^\s*\d+\.", lambda found: "\0" * len(found[0]), bare)
    found = [each for each in _NUMBER.finditer(bare) if not _YEAR.match(each[0])]
    return _other_digit(line.text, chance.choice(found), chance) if found else None


def _shape(line: _Line, chance: Random) -> str | None:
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
    return _put(line.text, one.start(1), one.end(1), ", ".join(sizes))


def _name(line: _Line, chance: Random) -> str | None:
    names = [
        (found.start(1) + name.start(), found.start(1) + name.end())
        for found in _SPAN.finditer(line.text)
        for name in re.finditer(r"[A-Za-z]\w{3,}", found[1])
    ]
    if not names:
        return None
    start, end = chance.choice(names)
    return _misspell(line.text, start, end, chance)


def _misspell(text: str, start: int, end: int, chance: Random) -> str:
    """Leave out a letter, or let two change places."""
    at = chance.randrange(start, end - 1)
    if chance.random() < 0.5:
        return _put(text, at, at + 1, "")
    return _put(text, at, at + 2, text[at + 1] + text[at])


def _marker(line: _Line, chance: Random) -> str | None:
    start = line.text.index("pytest") if "pytest" in line.text else 4
    return chance.choice(
        ["", _misspell(line.text, start, len(line.text.rstrip(">-")), chance)]
    )


def _fence(line: _Line, chance: Random) -> str | None:
    info = line.text.removeprefix("```")
    other = ["", "~~~" + info]
    if info:
        infos = ["py", "text", "", "python", "console"]
        other += [f"```{each}" for each in infos if each != info]
    return chance.choice(other)


def _section(line: _Line, chance: Random) -> str | None:
    found = re.match(r'--8<-- "[^":]+:([^":]+)"', line.text)
    return _misspell(line.text, found.start(1), found.end(1), chance) if found else None


def _link(line: _Line, chance: Random) -> str | None:
    links = re.finditer(r"\]\((?!https?:)([^)\s]+)\)", _outside(line.text, _SPAN))
    found = [each for each in links if re.search(r"\w{3}", each[1])]
    if not found:
        return None
    one = chance.choice(found)
    words = list(re.finditer(r"\w{3,}", one[1]))
    word = chance.choice(words)
    begin = one.start(1)
    return _misspell(line.text, begin + word.start(), begin + word.end(), chance)


def _label(line: _Line, chance: Random) -> str | None:
    found = list(_LABEL.finditer(line.text))
    if not found:
        return None
    label = chance.choice(found)
    words = list(re.finditer(r"[A-Za-z]{3,}", label[0]))
    word, begin = chance.choice(words), label.start()
    return _misspell(line.text, begin + word.start(), begin + word.end(), chance)


def _macro(line: _Line, chance: Random) -> str | None:
    text = line.text
    if line.part != "formula":
        shown = [found.span() for found in _FORMULA.finditer(_outside(text, _SPAN))]
    else:
        shown = [(0, len(text))]
    found = [
        each
        for each in _MACRO.finditer(text)
        if any(start <= each.start() < end for start, end in shown)
    ]
    if not found:
        return None
    one = chance.choice(found)
    return _misspell(text, one.start(1), one.end(1), chance)


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
    "a macro of a formula": ({"formula", "prose", "table"}, _macro),
}
