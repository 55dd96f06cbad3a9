"""Citations: names, years and sections agree with the one list of works cited.

The list is ``works.txt`` beside this file. Names stand before the title of their work,
a year behind a name or a title, and the number of a section, table or figure behind the
work that it belongs to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import prose_lines

_YEAR = re.compile(r"(?:19|20)\d\d$")
# Models, formats and projects that have a number in their name.
COINED = {
    *("GPT-2", "GPT-3", "T5", "FlashAttention-2", "llama2.c", "H100", "H200"),
    *("float16", "float32", "float64", "bfloat16", "int8", "fp16", "fp32", "bf16"),
}
LIST = "src/bookbinder/numbers/works.txt"
_HEAD = 3  # lines that say what the list is
_NAME = re.compile(r"[^\W\d_][\w'-]*")
_CITED = re.compile(
    r"(?P<names>[^*;:()\d]+?)(?: et al\.)?(?:,? \(?\d{4}\)?)?, \*(?P<title>[^*]+)\*"
)


@dataclass(frozen=True)
class Work:
    """A work that pages cite."""

    year: str
    names: tuple[str, ...]
    title: str
    places: frozenset[str]


@cache
def works() -> tuple[Work, ...]:
    """Read the list of works."""
    return read_works(Path(__file__).with_suffix(".txt").read_text("utf-8"))


def read_works(text: str) -> tuple[Work, ...]:
    """Read a list of works.

    Raises:
        ValueError: If a line is none of a work.
    """
    found: list[Work] = []
    for number, line in enumerate(text.splitlines()[_HEAD:], start=_HEAD + 1):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 4 or not is_year(cells[0]):
            raise ValueError(
                f"{LIST}:{number}: wanted year | names | title | sections, the last "
                f"empty if none is pointed to, not {line!r}"
            )
        year, names, title, places = cells
        named = tuple(names.split(", "))
        found.append(Work(year, named, title, frozenset(places.split(", "))))
    return tuple(found)


def is_year(text: str) -> bool:
    """Tell whether a number may be the year of a work."""
    return bool(_YEAR.match(text))


def is_cited(text: str, start: int, end: int) -> bool:
    """Tell whether the number at a place of a text is one of a citation that is right.

    The work is the one that is named last before the number: by its title, or by a
    name, if the year that follows the name is one of its works.
    """
    number, before = text[start:end], text[:start]
    for title in re.finditer(r"\*([^*]+)\*", text):
        if title.start() < start < title.end():
            return any(work.title.startswith(title[1]) for work in works())
    named = _last_named(before)
    if is_year(number):
        return any(work.year == number for work in named)
    kind = re.search(
        r"\b(section|table|figure|footnote|theorem|algorithm|equation)s?\s+"
        r"(?:[\d.]+(?:\s\([^()]*\))?(?:,\s|\sand\s|,\sand\s))*$",
        before,
    ) or re.search(r"\b(section)s\s(?:[^;*]*,\s)$", before)
    if not kind:
        return False
    place = number if kind[1] == "section" else f"{kind[1]} {number}"
    years = re.findall(r"\b(?:19|20)\d\d\b", before)
    dated = [work for work in named if years and work.year == years[-1]]
    return any(place in work.places for work in dated or named)


def _last_named(before: str) -> list[Work]:
    """Give the works that the words before a number name last."""
    best, found = -1, list[Work]()
    for work in works():
        marks = [
            match.end()
            for match in re.finditer(r"\*([^*]+)\*", before)
            if work.title.startswith(match[1])
        ]
        if marks and marks[-1] > best:
            best, found = marks[-1], [work]
    for match in _NAME.finditer(before, max(best, 0)):
        named = [work for work in works() if match[0] in work.names]
        if named and "*" not in before[match.start() :]:
            best, found = match.start(), named
    return found


def author_problems(page: Page) -> Iterator[Problem]:
    """Find names before the title of a work that are none of its authors'."""
    for number, line in prose_lines(page):
        for cited in _CITED.finditer(line):
            found = [w for w in works() if w.title.startswith(cited["title"])]
            known = {name for work in found for name in work.names}
            authors = re.split(r",? and |, ", cited["names"].strip("-. "))
            names = [author.split()[-1] for author in authors if author]
            wrong = [name for name in names if found and name not in known]
            if wrong:
                reason = (
                    f"{wrong[0]} is no author of {cited['title']}: "
                    f"{LIST} has {', '.join(sorted(known))}"
                )
                yield Problem(page.path, number, reason)
