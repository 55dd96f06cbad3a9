"""Hold the shapes that prose speaks of against those that there are.

A shape is that of an argument or a result of what the page names of the library, as its
signature says; or many signatures have it; or Notation has it in a table, or a diagram
or a block of the page shows it. Where `batch_first` is spoken of, the batch may stand
second, as PyTorch's layers have it.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.flows.sizes import SIZES
from bookbinder.names.resolving import LIBRARY
from bookbinder.reading.pages import Page, Problem, load_page
from bookbinder.reading.prose import formulas, prose_lines, spans

__all__ = ["frequent_shapes", "prose_shape_problems"]

_ANNOTATED = re.compile(r'(?:Float|Bool|Int)\[Tensor, "(?P<axes>[^"]*)"\]')
_ALIAS = re.compile(r"^(?P<name>_\w+) = (?P<type>.*Tensor.*)$", re.MULTILINE)
_Shape = tuple[str, ...]
# What nn.MultiheadAttention takes, and what is said where it is meant.
_THEIRS: dict[_Shape, str] = {
    ("T", "B", "D"): "batch_first",
    ("B * H", "T", "S"): "attn_mask",
}
# In a table of arguments: which axis is the last but one.
_ROLES = {"query": "T", "q": "T", "key": "S", "k": "S", "value": "S", "v": "S"}
_CELL = re.compile(r"(?<!\\)\|")
_SIZES = re.compile(r"\(([^()]*, [^()]*)\)")
_PRODUCT = re.compile(rf"(?i:products?) of {_SIZES.pattern} by {_SIZES.pattern}")
_THREE = re.compile(rf"{_SIZES.pattern}, {_SIZES.pattern},? and {_SIZES.pattern}")
_TIMES = re.compile(r"(?P<rows>[TSDCLBH]) \\times (?P<columns>[TSDCLBH])")
# What a tensor is viewed as is a shape as well.
_INTO = re.compile(r"^[\w.]*\b(?:view|reshape|expand)(?=\()")
_MANY = 5
_NOTATION = "docs/notation.md"


def prose_shape_problems(page: Page, root: Path) -> list[Problem]:
    """Find shapes in prose that nothing on the page has."""
    named = {*re.findall(r"[^\W\d]\w+", "\n".join(page.lines))}
    known = _in_fences(page) | frequent_shapes()
    if page.path != _NOTATION:  # whose tables its own runs stand behind
        known |= _in_notation(root)
    for name in named & _signatures().keys():
        known |= _signatures()[name]
    problems: list[Problem] = []
    for line, shape in _in_prose(page):
        theirs = _THEIRS.get(shape, "an order of theirs") in page.lines[line - 1]
        # In self-attention there are as many keys as queries.
        cross = (*shape[:-1], "S") if shape[-2:] == ("T", "T") else shape
        # C in code is what the formulas call d_context.
        wide = tuple("d_context" if size == "C" else size for size in shape)
        if not (known & {shape, cross, wide} or theirs or _is_own(shape)):
            reason = f"({', '.join(shape)}): nothing has this shape"
            problems.append(Problem(page.path, line, reason))
    return [*problems, *_arguments(page), *_together(page)]


def _together(page: Page) -> Iterator[Problem]:
    """Find shapes in a row that do not go together: a product, or q, k and v."""
    for number, line in prose_lines(page):
        text = re.sub(r"[$`]", "", _plain(line))
        for found in _PRODUCT.finditer(text):
            one, other = (each.split(", ") for each in found.groups())
            if one[-1] != other[-2]:
                reason = f"{found[0]}: a product has {one[-1]} in both, inside"
                yield Problem(page.path, number, reason)
        for found in _THREE.finditer(text):
            q, k, v = (each.split(", ") for each in found.groups())
            if q[-2] == "T" and k[-2:] == ["S", q[-1]] and v[-2] != "S":
                reason = f"{found[0]}: there are as many values as keys, S"
                yield Problem(page.path, number, reason)


def _arguments(page: Page) -> Iterator[Problem]:
    """Find rows of a table that give arguments other shapes than their names say."""
    for number, line in prose_lines(page):
        if not line.startswith("|"):
            continue
        cells = _CELL.split(_plain(line))
        names = re.findall(r"`(\w+)`", cells[1])
        for cell in cells[2:]:
            shapes = [tuple(s.split(", ")) for s in _SIZES.findall(cell)]
            for name, shape in zip(names, shapes, strict=False):
                axis = _ROLES.get(name) if len(names) == len(shapes) else None
                if axis and shape[-2:-1] not in ((), (axis,)):
                    what = f"({', '.join(shape)}): {name} has {axis} there"
                    yield Problem(page.path, number, what)


def _is_own(shape: _Shape) -> bool:
    """Tell whether a size is a letter or a number that the page alone explains.

    Positions come before features all the same.
    """
    places = {"B", "H", "H_kv", "B * H", "T", "S", "1"}
    late = any(
        size in ("T", "S") and before not in places for before, size in pairwise(shape)
    )
    own = (re.fullmatch(r"[a-z]|\d+\w?", size) and size != "1" for size in shape)
    return any(own) and not late


def _in_prose(page: Page) -> Iterator[tuple[int, _Shape]]:
    """Give each shape that stands in backticks or in a formula by itself."""
    written = [(span.line, span.text) for span in spans(page)]
    written += [(formula.line, _plain(formula.tex)) for formula in formulas(page)]
    for number, line in prose_lines(page):
        bare = re.sub(r"`[^`]*`|\$[^$]*\$", "", line)
        shapes = (shape for shape in SHAPE.finditer(bare) if _is_of_sizes(shape))
        written += [(number, shape[0]) for shape in shapes]
    for line, text in written:
        found = SHAPE.fullmatch(_INTO.sub("", text))
        # One letter in parentheses is a letter, small ones alone are an arrow.
        if found and "," in text and re.search("[A-Z]", text):
            yield line, tuple(found["sizes"].split(", "))
        if matrix := _TIMES.fullmatch(text):
            yield line, (matrix["rows"], matrix["columns"])


def _is_of_sizes(shape: re.Match[str]) -> bool:
    """Tell a shape in plain words from all else that stands in parentheses."""
    letters = re.findall(r"[A-Za-z]\w*", shape["sizes"])
    return all(letter in SIZES for letter in letters)


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
def _in_notation(root: Path) -> frozenset[_Shape]:
    """Give the shapes of Notation's tables."""
    lines = prose_lines(load_page(root / _NOTATION, root))
    return _shapes("\n".join(_plain(line) for _, line in lines if line[:1] == "|"))


@cache
def frequent_shapes() -> frozenset[_Shape]:
    """Give the shapes that stand for themselves, since many signatures have them."""
    counts = Counter(shape for found in _signatures().values() for shape in found)
    return frozenset(shape for shape, count in counts.items() if count >= _MANY)


@cache
def _signatures() -> dict[str, frozenset[_Shape]]:
    """Give the shapes of the arguments and results of each function and class."""
    found = defaultdict[str, frozenset[_Shape]](frozenset)
    for file in LIBRARY.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        lines = source.splitlines()
        # A type that several signatures share has a name of its own.
        shared = {alias["name"]: alias["type"] for alias in _ALIAS.finditer(source)}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                for name in shared.keys() & {*re.findall(r"\w+", text)}:
                    text += shared[name]
                found[node.name] |= {
                    tuple(axis for axis in note["axes"].split() if axis[0] not in "*.")
                    for note in _ANNOTATED.finditer(text)
                }
    return dict(found)
