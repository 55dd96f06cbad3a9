"""Hold the shapes that prose speaks of against those that there are.

A shape is that of an argument or a result of the library, as its signature says; or
Notation has it in a table, a diagram draws it, or a block of the page shows it. Axes
may be left out in front, where a text speaks of one sequence or one head.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.names.resolving import LIBRARY
from bookbinder.reading.pages import Page, Problem, load_page
from bookbinder.reading.prose import formulas, prose_lines, spans

__all__ = ["prose_shape_problems"]

_ANNOTATED = re.compile(r'(?:Float|Bool|Int)\[Tensor, "(?P<axes>[^"]*)"\]')
# The order and the masks of nn.MultiheadAttention, which other libraries took over.
_THEIRS = {("T", "B", "D"), ("B * H", "T", "S")}
_Shape = tuple[str, ...]


def prose_shape_problems(page: Page, root: Path) -> list[Problem]:
    """Find shapes in prose that nothing has."""
    known = _known(root) | _in_fences(page)
    return [
        Problem(page.path, line, f"({', '.join(shape)}): nothing has this shape")
        for line, shape in _in_prose(page)
        if not _is_known(shape, known)
    ]


def _is_known(shape: _Shape, known: frozenset[_Shape]) -> bool:
    if any(re.fullmatch(r"[a-z]|\d+", size) and size != "1" for size in shape):
        return True  # A letter or a number of the page's own.
    if shape[:1] == ("B",):
        shorter = {shape[1:], shape[2:]} if shape[1:2] == ("H",) else {shape[1:]}
    else:
        shorter = {("B", *shape)}
    return bool(known & {shape, *shorter})


def _in_prose(page: Page) -> Iterator[tuple[int, _Shape]]:
    """Give each shape that stands in backticks or in a formula by itself."""
    written = [(span.line, span.text) for span in spans(page)]
    written += [(formula.line, _plain(formula.tex)) for formula in formulas(page)]
    for line, text in written:
        found = SHAPE.fullmatch(text)
        # One letter in parentheses is a letter, small ones alone are an arrow.
        if found and "," in text and re.search("[A-Z]", text):
            yield line, tuple(found["sizes"].split(", "))


def _plain(tex: str) -> str:
    tex = re.sub(r"\\text\{(\w+)\}", r"\1", tex)
    return re.sub(r"_\{?(\w+)\}?", r"_\1", tex)


def _in_fences(page: Page) -> frozenset[_Shape]:
    prose = dict(prose_lines(page))
    lines = (line for number, line in enumerate(page.lines, 1) if number not in prose)
    return _shapes("\n".join(line for line in lines if not line.startswith("<!--")))


def _shapes(text: str) -> frozenset[_Shape]:
    return frozenset(
        tuple(shape["sizes"].split(", "))
        for shape in SHAPE.finditer(text)
        if "," in shape[0]
    )


@cache
def _known(root: Path) -> frozenset[_Shape]:
    """Give the shapes of signatures, of Notation's tables and of all diagrams."""
    found = {*_THEIRS, *_shapes(" ".join(_drawn(root)))}
    for file in LIBRARY.rglob("*.py"):
        for note in _ANNOTATED.finditer(file.read_text(encoding="utf-8")):
            axes = [axis for axis in note["axes"].split() if axis[0] not in "*."]
            found.add(tuple(axes))
    for _, line in prose_lines(load_page(root / "docs/notation.md", root)):
        if line.startswith("|"):
            found |= _shapes(_plain(line))
    return frozenset(found)


def _drawn(root: Path) -> Iterator[str]:
    """Give the labels of the diagrams of all pages."""
    for file in sorted((root / "docs").rglob("*.md")):
        drawing = False
        for line in file.read_text(encoding="utf-8").split("\n"):
            drawing = line == "```mermaid" or (drawing and line != "```")
            if drawing and not re.match(r"\s*(?:%%|acc)", line):
                yield line
