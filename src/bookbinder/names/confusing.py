"""Names that are easily taken for another: they stand in code of the same heading.

Who means `k_proj` and writes `q_proj` writes a name that there is. So where the code
under a heading has one of two that differ in a letter, prose under it does not speak of
the other, unless it goes through all of them or links to where they are; and where it
gives an argument literal values, prose does not give it another. If nothing under this
heading does, the page is asked, and then the book: what is left to a default says less.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from bookbinder.flows.sizes import SIZES
from bookbinder.names.resolving import LIBRARY
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem, load_page
from bookbinder.reading.prose import prose_lines, spans

__all__ = ["code_by_part", "confusion_problems", "part_of"]

_NAME = re.compile(r"(?<!\w)[A-Za-z]\w*")
_VALUE = r"True|False|None|\d[\d.]*|\"\w+\""
_ARGUMENT = re.compile(rf"(?P<name>[A-Za-z]\w*)=(?P<value>{_VALUE})(?![\w.])")
_SHORT = 2  # letters of the word that tells two names apart
_ALL = 3  # siblings in one line are all that are meant


def confusion_problems(page: Page, root: Path) -> list[Problem]:
    """Find names and values whose neighbors the code has, and not them."""
    code = code_by_part(page, root)
    whole = {"of this page": "\n".join(code.values())}
    problems: list[Problem] = []
    for span in spans(page):
        here = code[part_of(span.line, code)]
        line = page.lines[span.line - 1]
        if "](" in line:
            continue
        problems += [
            Problem(page.path, span.line, f"`{span.text}`: {reason}")
            for reason in (
                *_other_names(span.text, here, line),
                *_other_values(span.text, {"under this heading": here} | whole, root),
                *_other_order(span.text, here),
            )
        ]
    return problems


def code_by_part(page: Page, root: Path) -> dict[int, str]:
    """Give runs, outputs and listings under each heading of level 2, by its line."""
    prose = dict(prose_lines(page))
    parts = [0, *(number for number, line in prose.items() if line.startswith("## "))]
    code = dict.fromkeys(parts, "")
    for number, line in enumerate(page.lines, start=1):
        if number not in prose and not line.startswith("<!--"):
            code[part_of(number, code)] += f"{line}\n"
    for listing in page.listings:
        with contextlib.suppress(ListingError):  # The audit says so.
            section = find_section(root, listing.path, listing.section)
            code[part_of(listing.line, code)] += f"{section.text}\n"
    return code


def part_of(line: int, parts: Iterable[int]) -> int:
    """Give the heading that a line stands under."""
    return max(part for part in parts if part <= line)


def _other_names(text: str, code: str, line: str) -> Iterator[str]:
    known = {*re.findall(r"\w+", code)}
    for name in dict.fromkeys(_NAME.findall(text)):
        if name in known or name in SIZES:
            continue
        named = {each for each in re.findall(r"\w+", line) if _alike(each, name)}
        there = sorted(each for each in known if _alike(each, name))
        if there and len(named | {name}) < _ALL:
            yield f"the code under this heading has {there[0]}, and no {name}"


def _other_order(text: str, code: str) -> Iterator[str]:
    """Compare a call with the definition that the page has of what is called."""
    call = re.fullmatch(r"(\w+)\(([\w, ]+)\)", text)
    if not call:
        return
    defined = re.search(rf"^def {call[1]}\(([\w, ]*)\)", code, re.MULTILINE)
    wanted = defined[1].split(", ") if defined else []
    for place, name in enumerate(call[2].split(", ")):
        if name in wanted and wanted.index(name) != place:
            yield f"the code under this heading has {call[1]}({', '.join(wanted)})"
            return


def _alike(one: str, other: str) -> bool:
    """Tell whether two names differ in one short word of several: q_proj, k_proj."""
    words = one.split("_"), other.split("_")
    if len(words[0]) != len(words[1]) or len(words[0]) < 2:
        return False
    differing = [pair for pair in zip(*words, strict=True) if pair[0] != pair[1]]
    return len(differing) == 1 and all(0 < len(each) <= _SHORT for each in differing[0])


def _other_values(text: str, places: dict[str, str], root: Path) -> Iterator[str]:
    """Compare arguments with what the nearest code gives to them, if it is literal."""
    for found in _ARGUMENT.finditer(text):
        name, value = found["name"], found["value"]
        for place, code in {**places, "of the book": _book(root)}.items():
            given = _given(name, code)
            if not given:
                continue
            literal = {each for each in given if re.fullmatch(_VALUE, each)}
            far = place != "under this heading"
            if far and value in _given(name, _library()):
                break  # What the library does by itself need not be written.
            if literal == given and value not in literal | _listed(name, code):
                yield f"the code {place} has {name}={min(given)} alone"
            break


def _given(name: str, code: str) -> set[str]:
    """Give what code writes behind the name of an argument and an equals sign."""
    pattern = rf"\b{name}(?:: [\w| ]+?)?\s?=\s?([^\s,)\]}}=]+)"
    return {each.rstrip(":") for each in re.findall(pattern, code)}


def _listed(name: str, code: str) -> set[str]:
    """Give what code has under the name of an argument in a dictionary."""
    return {*re.findall(rf"[\"']{name}[\"']: ([^\s,}}]+)", code)}


@cache
def _book(root: Path) -> str:
    """Give the code of all pages."""
    pages = (load_page(file, root) for file in sorted((root / "docs").rglob("*.md")))
    return "\n".join(block.code for page in pages for block in page.blocks)


@cache
def _library() -> str:
    return "\n".join(file.read_text("utf-8") for file in sorted(LIBRARY.rglob("*.py")))
