"""Lines of a page, what each is part of, and how a hand changes one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["FORMULA", "SPAN", "Line", "cut", "misspell", "outside", "put"]

_FENCE = re.compile(r"```(?P<info>.*)$")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FORMULA = re.compile(r"\$[^$]+\$")


@dataclass(frozen=True)
class Line:
    """A line, what it is part of, and the heading of level 2 that it stands under."""

    number: int
    text: str
    part: str
    section: str


def cut(lines: list[str]) -> Iterator[Line]:
    """Give the lines of a page, each with its part and its section.

    What stands between lines of ``---`` above the page is for the site alone.
    """
    fence: str | None = None
    in_formula, section = False, ""
    begin = lines.index("---", 1) + 1 if lines[:1] == ["---"] else 0
    for number, text in enumerate(lines[begin:], start=begin + 1):
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
        yield Line(number, text, part, section)


def outside(text: str, *hidden: re.Pattern[str]) -> str:
    """Blot out what a slip should not hit; every place keeps its number."""
    for pattern in hidden:
        text = pattern.sub(lambda found: "\0" * len(found[0]), text)
    return text


def put(text: str, start: int, end: int, new: str) -> str:
    """Put something into the place of something else."""
    return text[:start] + new + text[end:]


def misspell(text: str, start: int, end: int, chance: Random) -> str:
    """Leave out a letter, or let two change places."""
    at = chance.randrange(start, end - 1)
    if chance.random() < 0.5:
        return put(text, at, at + 1, "")
    return put(text, at, at + 2, text[at + 1] + text[at])
