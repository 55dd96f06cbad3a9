"""Hold the shapes in docstrings and comments of runs against what was there.

``x: (B, T, D). real: (B, T).`` speaks of arguments, ``the weights: (L, H, T, T)`` of
what comes back, and a comment behind an assignment of what is assigned: there, and not
further down. A letter is one size within a docstring, and that of a variable or a
module of its name. ``(B, S) as (T, S)`` are two readings of something on the line, by
letters whose sizes are said. A table of names and their shapes is held in the same way
against the variables of a run.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.flows.sizes import SIZES
from bookbinder.names.spoken_numbers import said_sizes
from bookbinder.reading.pages import Chain, Page, Problem
from bookbinder.reading.prose import prose_lines
from bookbinder.reading.seen import Remark, Seen, Shape, remarks

__all__ = ["spoken_shape_problems"]

_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*): $")
_LETTER = re.compile(r"[A-Za-z]\w*")
_EACH = re.compile(r"\b(?:each|a list of|lists of) $")
_ROW = re.compile(r"\|(?P<names>[^|]*`[^|]*)\|[^|]*?\$(?P<tex>\([^$]*\))\$[^|]*\|\s*$")
_Sizes = Mapping[str, int]
# The line, the names, the shape, and whether it is that of each of several.
_Mention = tuple[int, list[str], re.Match[str], bool]


@dataclass
class _Said:
    """Shapes that one docstring or comment speaks of, each with its line and its names.

    ``line`` is that of the function, or where the statement of the comment ends.
    Without names it is said of something that comes back, or of any variable;
    ``sizes`` are those that comments above have said, and ``alike`` asks for one thing
    with all of the shapes.
    """

    line: int
    shapes: list[_Mention]
    sizes: _Sizes = field(default_factory=dict[str, int])
    alike: bool = False


def spoken_shape_problems(page: Page, seen: Mapping[int, list[Seen]]) -> list[Problem]:
    """Find shapes that nothing had, where it is said of what.

    Args:
        page: The page.
        seen: What the functions of each chain had, by the first line of the chain.
    """
    problems: list[Problem] = []
    for chain in page.chains:
        ran = seen.get(chain.line, [])
        for said in _said(chain):
            ends = [each for each in ran if each.line == said.line]
            asked = _unlike if said.alike else _wrong
            reasons = filter(None, (asked(said, each) for each in ends))
            for line, reason in [*reasons][:1]:
                problems.append(Problem(page.path, line, reason))
    return [*problems, *_table_problems(page, seen)]


def _said(chain: Chain) -> Iterator[_Said]:
    """Give all shapes that the code of a chain speaks of."""
    for block in chain.blocks:
        try:
            tree = ast.parse(block.code)
        except SyntaxError:
            return  # That is told as what it is.
        for node in ast.walk(tree):
            text = isinstance(node, ast.FunctionDef) and ast.get_docstring(node, False)
            if (
                isinstance(node, ast.FunctionDef)
                and text
                and (shapes := [*_in_docstring(text, block.line, node)])
            ):
                yield _Said(block.line + _begin(node), shapes)
    comments = remarks(chain)
    for remark in comments:
        found, names = _shapes_in(remark.text), _assigned(remark)
        said = said_sizes(remark, comments)
        if len(found) == 2 and f"{found[0][0]} as {found[1][0]}" in remark.text:
            those: list[_Mention] = [
                (remark.line, sorted(remark.named), shape, False) for shape in found
            ]
            yield _Said(remark.last, those, said, True)
        elif names and len(found) == 1:
            one: list[_Mention] = [(remark.line, names, found[0], False)]
            yield _Said(remark.last, one, said)


def _begin(node: ast.FunctionDef) -> int:
    return min([node, *node.decorator_list], key=lambda each: each.lineno).lineno


def _shapes_in(text: str) -> list[re.Match[str]]:
    """Give the shapes of a text: with a comma, and a capital letter."""
    shapes = SHAPE.finditer(text)
    return [each for each in shapes if "," in each[0] and re.search("[A-Z]", each[0])]


def _in_docstring(text: str, begin: int, node: ast.FunctionDef) -> Iterator[_Mention]:
    """Give the shapes of a docstring: of arguments by name, or of what comes back."""
    arguments = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    for shape in _shapes_in(text):
        before = text[: shape.start()]
        each = _EACH.search(before)
        named = _NAMED.search(before[: each.start()] if each else before)
        names = [named["name"]] if named and named["name"] in arguments else []
        line = begin + node.body[0].lineno + before.count("\n")
        yield line, names, shape, bool(each)


def _assigned(remark: Remark) -> list[str]:
    """Give what is assigned by a statement that ends in a line, if it has one name."""
    node = remark.node
    if not isinstance(node, ast.Assign) or remark.line != remark.last:
        return []
    return [each.id for each in node.targets if isinstance(each, ast.Name)]


def _known(said: _Said, seen: Seen) -> dict[str, int]:
    # In self-attention there are as many keys as queries, whatever S is elsewhere.
    known = {name: n for name, n in seen.sizes.items() if name in SIZES.keys() - {"S"}}
    return known | dict(said.sizes)


def _wrong(said: _Said, seen: Seen) -> tuple[int, str] | None:
    """Say what is wrong with a docstring, or with a comment, for one call."""
    sizes = _known(said, seen)
    for line, names, shape, each in said.shapes:
        there = [name for name in names if name in seen.values]
        groups = [seen.values[name] for name in there]
        if not names:
            groups = [seen.returned] if each else [[one] for one in seen.returned]
        letters = shape["sizes"].split(", ")
        fits = (_fitting(letters, group, sizes) for group in groups)
        found = next((fit for fit in fits if fit is not None), None)
        if groups and found is None:
            every = dict.fromkeys(str(one) for group in groups for one in group)
            had = " or ".join([*every][:3])
            what = there[0] if there else "what comes back"
            return line, f"this says {shape[0]}, but {what} is {had} in the run"
        sizes = found or sizes
    return None


def _unlike(said: _Said, seen: Seen) -> tuple[int, str] | None:
    """Say of two shapes why nothing of their line can be read as both."""
    sizes = _known(said, seen)
    every = [shape["sizes"].split(", ") for *_, shape, _ in said.shapes]
    line, names, *_ = said.shapes[0]
    for letter in (one for letters in every for one in letters):
        if not letter.isdigit() and letter not in sizes:
            wanted = f"write {letter} = and its size behind what has it"
            return line, f"nothing above says which size {letter} has: {wanted}"
    there = [shape for name in names for shape in seen.values.get(name, [])]
    for one in there:
        if all(_fitting(letters, [one], sizes) is not None for letters in every):
            return None
    text = " as ".join(shape[0] for *_, shape, _ in said.shapes)
    had = " or ".join([*dict.fromkeys(map(str, there))][:3]) or "nothing with a shape"
    return line, f"this says {text}, but on its line is {had} in the run"


def _fitting(
    letters: list[str], shapes: Iterable[Shape], sizes: _Sizes
) -> dict[str, int] | None:
    """Give the sizes of letters, with those of shapes; nothing if one is another."""
    known = dict(sizes)
    for shape in shapes:
        if len(shape) != len(letters):
            return None
        for letter, size in zip(letters, shape, strict=True):
            if letter.isdigit():
                if int(letter) != size:
                    return None
            elif _LETTER.fullmatch(letter) and known.setdefault(letter, size) != size:
                return None
    return known


def _table_problems(page: Page, seen: Mapping[int, list[Seen]]) -> Iterator[Problem]:
    """Hold the rows of a table with names and shapes against the run above or below."""
    tables: list[list[tuple[int, list[str], str]]] = [[]]
    for number, line in prose_lines(page):
        row = _ROW.search(line) if line.startswith("|") else None
        if row:
            names = re.findall(r"`(\w+)`", row["names"])
            tables[-1].append((number, names, _plain(row["tex"])))
        elif not line.startswith("|") and tables[-1]:
            tables.append([])
    for table in filter(None, tables):
        yield from _in_table(page, table, seen)


def _plain(tex: str) -> str:
    return re.sub(r"\\text\{(\w+)\}|_\{?(\w+)\}?", r"\1_\2", tex).replace("__", "_")


def _in_table(
    page: Page, table: list[tuple[int, list[str], str]], seen: Mapping[int, list[Seen]]
) -> Iterator[Problem]:
    wanted = {name for _, names, _ in table for name in names}
    ends = [each for ran in seen.values() for each in ran if each.line == 1]
    having = [each for each in ends if wanted <= each.values.keys()]
    told: list[Problem] = []
    for end in having:
        told = []
        sizes: dict[str, int] = {n: v for n, v in end.sizes.items() if n in SIZES}
        for line, names, text in table:
            shape = SHAPE.fullmatch(text)
            for name in names if shape else []:
                letters = shape["sizes"].split(", ") if shape else []
                found = _fitting(letters, end.values[name], sizes)
                if found is None:
                    reason = f"{text}, but {name} is {end.values[name][0]} in the run"
                    told.append(Problem(page.path, line, reason))
                else:
                    sizes = found
        if not told:
            return
    yield from told
