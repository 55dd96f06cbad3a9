"""Find sections of source files, and which of their statements have run.

A section is the text between ``# --8<-- [start:name]`` and ``# --8<-- [end:name]``, or
the same after ``//`` in JavaScript.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bookbinder.page import Listing, Page, Problem
from bookbinder.places import real_name
from bookbinder.running.recording import Idle

_MARK = r"^[ \t]*(?:#|//) --8<-- \[{}\][ \t]*(?:\n|\Z)"
_ANY_MARK = re.compile(_MARK.format(r"(?:start|end):([\w-]+)"), re.MULTILINE)

Executed = Set[tuple[str, int]]
"""Lines that have run, each as (real name of the file, line)."""


class ListingError(ValueError):
    """A listing has no valid section; the message says why."""


@dataclass(frozen=True)
class Section:
    """A section of a source file, with the numbers of its first and last line."""

    file: Path
    path: str
    first: int
    last: int
    text: str


def find_section(root: Path, path: str, name: str) -> Section:
    """Return a section by its name.

    Raises:
        ListingError: If the file or the section is not there, or there are several.
    """
    file = root / path
    home = "src/transformer_book/" if file.suffix == ".js" else "src/"
    inside = path.startswith(home) and ".." not in path
    if not inside or file.suffix not in (".py", ".js") or not file.is_file():
        kind = "JavaScript" if file.suffix == ".js" else "Python"
        raise ListingError(f"{path} is not a {kind} file under {home}")
    source = file.read_text(encoding="utf-8")
    start, end = (
        _MARK.format(f"{kind}:{re.escape(name)}") for kind in ("start", "end")
    )
    sections = [*re.finditer(f"{start}(.*?){end}", source, re.DOTALL | re.MULTILINE)]
    if len(sections) != 1:
        names = ", ".join(sorted({*_ANY_MARK.findall(source)})) or "none"
        raise ListingError(
            f"{path} has {'several sections' if sections else 'no section'} {name!r}, "
            f"each with a start and an end behind it; it has {names}"
        )
    first, last = (source.count("\n", 0, at) for at in sections[0].span(1))
    text = textwrap.dedent(_ANY_MARK.sub("", sections[0][1])).removesuffix("\n")
    if not text.strip():
        raise ListingError(f"section {name!r} of {path} is empty")
    return Section(file, path, first + 1, last, text)


def listing_problems(page: Page, root: Path) -> Iterator[Problem]:
    """Return a problem for each listing of a page that has no section."""
    for listing in page.listings:
        try:
            find_section(root, listing.path, listing.section)
        except ListingError as error:
            yield Problem(page.path, listing.line, str(error))


def listed_sections(page: Page, root: Path) -> Iterator[tuple[Listing, Section]]:
    """Return each listing of a page that has a section, with the section."""
    for listing in page.listings:
        with suppress(ListingError):
            yield listing, find_section(root, listing.path, listing.section)


def never_executed(section: Section, executed: Executed) -> list[int]:
    """Return the first line of each listed statement that has not run.

    Only statements inside functions count, because the others run when the module is
    imported, whatever the page does. A statement over several lines has run if any of
    them has.
    """
    source = section.file.read_text(encoding="utf-8")
    return [
        line
        for line in idle_statements(source, real_name(str(section.file)), executed)
        if section.first <= line <= section.last
    ]


def idle_statements(
    source: str, file: str, executed: Executed, *, everywhere: bool = False
) -> list[int]:
    """Return the first line of each statement that has not run.

    Args:
        source: The code.
        file: The name under which its lines were recorded.
        executed: The lines that have run.
        everywhere: Whether to include statements outside functions.
    """
    ran = {line for name, line in executed if name == file}
    return [
        first
        for first, last in _statements(source, everywhere)
        if ran.isdisjoint(range(first, last + 1))
    ]


@cache  # several pages list the same file
def _statements(source: str, everywhere: bool) -> list[tuple[int, int]]:
    """Return the first and last line of every statement, or of those in functions."""
    tree = ast.parse(source)
    spans: set[tuple[int, int]] = set()
    for outer in ast.walk(tree):
        function = isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        if function or (everywhere and outer is tree):
            for node in ast.walk(outer):
                if node is not outer and isinstance(node, ast.stmt):
                    spans.update(_span(node))
    return sorted(spans)


def _span(node: ast.stmt) -> Iterator[tuple[int, int]]:
    match node:
        case ast.Expr(ast.Constant()):  # A docstring, or the ellipsis of an overload.
            return
        case ast.Try() | ast.Global() | ast.Nonlocal() | ast.Pass():
            return  # The statement itself runs no code.
        case ast.AnnAssign(value=None) | ast.ImportFrom(module="__future__"):
            return
        case ast.Raise() if "NotImplementedError" in ast.dump(node):
            return  # An abstract method, for subclasses to implement.
        case _:
            body: list[ast.stmt] = getattr(node, "body", [])
            last = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
            yield node.lineno, max(node.lineno, last)


def never_run(section: Section, idle: Idle) -> list[int]:
    """Return the first line of each part of a section of JavaScript that has not run.

    Args:
        section: The section.
        idle: For each script that was loaded, the characters that never ran.
    """
    file = real_name(str(section.file))
    if file not in idle:
        return [section.first]
    lines: list[int] = []
    start = 0
    source = section.file.read_text("utf-8")
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        listed = section.first <= number <= section.last
        # Closing brackets are counted with what follows them.
        places = (start + at for at, sign in enumerate(line) if not sign.isspace())
        if listed and line.strip("}); \n") and idle[file].intersection(places):
            lines.append(number)
        start += len(line)
    return [line for line in lines if line - 1 not in lines]
