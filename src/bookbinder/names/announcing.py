"""Hold every listing against the words that announce it.

A heading that spells out a section of a file has it below, and a paragraph that names
functions of a file, directly above a listing of that file, has them listed. No section
is listed twice on a page: who has read it is sent back to it. Marks that prose speaks
of come in pairs, as in a file.
"""

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bookbinder.reading.listings import ListingError, Section, find_section
from bookbinder.reading.pages import Listing, Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["listing_problems"]

_MARK = re.compile(r"--8<-- \[start:([\w-]+)\]")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^]]*\]\([^)]*\)")
_FUNCTION = re.compile(r"^\s*(?:export )?function (\w+)", re.MULTILINE)


@dataclass
class _Announced:
    """Listings with nothing between them, and what stands above."""

    heading: int
    paragraph: str
    listings: list[Listing] = field(default_factory=list[Listing])


def listing_problems(page: Page, root: Path) -> list[Problem]:
    """Find listings that are not what the words above them say."""
    problems = [*_unpaired(page)]
    seen: dict[tuple[str, str], int] = {}
    for each in page.listings:
        first = seen.setdefault((each.path, each.section), each.line)
        if first != each.line:
            reason = f"{each.path}:{each.section} is listed above, at line {first}"
            problems.append(Problem(page.path, each.line, reason))
    by_heading: dict[int, set[tuple[str, str]]] = {}
    announced = [*_announced(page)]
    for group in announced:
        listed = by_heading.setdefault(group.heading, set())
        listed |= {(each.path, each.section) for each in group.listings}
    for group in announced:
        for path in {each.path for each in group.listings}:
            listed = {s for p, s in by_heading[group.heading] if p == path}
            reason = _unannounced(group, path, listed, page, root)
            if reason:
                problems.append(Problem(page.path, group.listings[0].line, reason))
    return problems


def _unpaired(page: Page) -> Iterator[Problem]:
    """Find marks of prose that begin a section and end another."""
    text = "\n".join(line for _, line in prose_lines(page))
    begun, ended = ({*re.findall(rf"\[{m}:([\w-]+)\]", text)} for m in ("start", "end"))
    for name in sorted(begun ^ ended):
        line = next(n for n, each in prose_lines(page) if f":{name}]" in each)
        yield Problem(page.path, line, f"[start:{name}] and [end:{name}] come in pairs")


def _unannounced(
    group: _Announced, path: str, listed: set[str], page: Page, root: Path
) -> str | None:
    shown = [*_sections(group, path, root)]
    if not shown:
        return None
    source = (root / path).read_text(encoding="utf-8")
    heading = page.lines[group.heading - 1] if group.heading else ""
    spelled = [
        section
        for section in dict.fromkeys(_MARK.findall(source))
        if len(_words(section)) > 1 and _words(section) <= _words(heading)
    ]
    around = _words(f"{heading} {group.paragraph}")
    if spelled and not any(_words(section) <= around for section in listed):
        return f"the heading speaks of {path}:{spelled[0]}, and it is not listed here"
    title = _words(heading)
    for section in sorted(listed):
        words = _words(section)
        if 1 < len(words) == len(title) and words & title and words != title:
            return f"the heading is nearly {section}, which is listed here: name it so"
    said = _SPAN.findall(_LINK.sub("", group.paragraph))
    named = {word for span in said for word in re.findall(r"\w+", span)}
    text = "\n".join(section.text for section in shown)
    for name, first, last in _definitions(source, path):
        inside = any(first <= each.first <= last for each in shown)
        if name in named and not inside and not re.search(rf"\b{name}\b", text):
            return f"the words above speak of {name}, and this lists none of it"
    return None


def _sections(group: _Announced, path: str, root: Path) -> Iterator[Section]:
    for each in group.listings:
        if each.path == path:
            with contextlib.suppress(ListingError):  # The audit has said so.
                yield find_section(root, path, each.section)


def _definitions(source: str, path: str) -> Iterator[tuple[str, int, int]]:
    """Give each function and class of a file, with its first and its last line."""
    if path.endswith(".js"):
        for found in _FUNCTION.finditer(source):
            yield found[1], 0, 0
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno, node.end_lineno or node.lineno


def _announced(page: Page) -> Iterator[_Announced]:
    prose = dict(prose_lines(page))
    listings = {each.line: each for each in page.listings}
    heading, paragraph = 0, list[str]()
    group: _Announced | None = None
    for number, line in enumerate(page.lines, start=1):
        if number in listings:
            if group is None:
                group = _Announced(heading, " ".join(paragraph))
                yield group
            group.listings.append(listings[number])
        elif number in prose and line.strip():
            if not page.lines[number - 2].strip() or group:
                paragraph = []
            group = None
            if re.match(r"#{1,6} ", line):
                heading, paragraph = number, []
            else:
                paragraph.append(line)
        elif line.startswith("```") and line != "```" and "title=" not in line:
            group = None  # A run between two listings: the second is announced by it.
            paragraph = []


def _words(text: str) -> set[str]:
    return {word.lower().rstrip("s") for word in re.findall(r"[A-Za-z]+", text)}
