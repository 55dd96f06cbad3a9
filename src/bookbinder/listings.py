"""Find sections of source files, and which of their statements have run.

A section is the text between ``# --8<-- [start:name]`` and ``# --8<-- [end:name]``, or
the same after ``//`` in JavaScript.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from bookbinder.places import real_name

_MARK = re.compile(r"^\s*(?:#|//) --8<-- \[(?P<kind>start|end):(?P<name>[\w-]+)\]\s*$")

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
        ListingError: If the file or the section is not there, or its marks are not
            one start and one end, in this order.
    """
    file = root / path
    home = "src/transformer_book/" if file.suffix == ".js" else "src/"
    inside = path.startswith(home) and ".." not in path
    if not inside or file.suffix not in (".py", ".js") or not file.is_file():
        kind = "JavaScript" if file.suffix == ".js" else "Python"
        raise ListingError(f"{path} is not a {kind} file under {home}")
    lines = file.read_text(encoding="utf-8").splitlines()
    marks = [_MARK.match(line) for line in lines]
    starts, ends = (
        [
            number
            for number, mark in enumerate(marks, start=1)
            if mark and (mark["kind"], mark["name"]) == (kind, name)
        ]
        for kind in ("start", "end")
    )
    if not starts and not ends:
        sections = sorted({mark["name"] for mark in marks if mark})
        raise ListingError(
            f"{path} has no section {name!r}; it has {', '.join(sections) or 'none'}"
        )
    if len(starts) != 1 or len(ends) != 1 or starts[0] >= ends[0]:
        raise ListingError(
            f"section {name!r} of {path} must have one start and one end after it; "
            f"starts at {starts}, ends at {ends}"
        )
    first, last = starts[0] + 1, ends[0] - 1
    shown = [
        line
        for line, mark in zip(
            lines[first - 1 : last], marks[first - 1 : last], strict=True
        )
        if not mark
    ]
    text = textwrap.dedent("\n".join(shown))
    if not text.strip():
        raise ListingError(f"section {name!r} of {path} is empty")
    return Section(file, path, first, last, text)


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
        for first, last in sorted(set(_statements(ast.parse(source), everywhere)))
        if ran.isdisjoint(range(first, last + 1))
    ]


def _statements(tree: ast.Module, everywhere: bool) -> Iterator[tuple[int, int]]:
    """Return the first and last line of every statement, or of those in functions."""
    for outer in ast.walk(tree):
        function = isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        if function or (everywhere and outer is tree):
            for node in ast.walk(outer):
                if node is not outer and isinstance(node, ast.stmt):
                    yield from _span(node)


def _span(node: ast.stmt) -> Iterator[tuple[int, int]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # A docstring, or the ellipsis of an overload.
    if isinstance(node, ast.Try | ast.Global | ast.Nonlocal | ast.Pass):
        return  # The statement itself runs no code.
    if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
        return  # An abstract method, for subclasses to implement.
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return  # An annotation without a value.
    body: list[ast.stmt] = getattr(node, "body", [])
    last = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
    yield node.lineno, max(node.lineno, last)
