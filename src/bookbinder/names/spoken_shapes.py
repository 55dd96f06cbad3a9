"""Hold the shapes in docstrings and comments of runs against what was there.

``x: (B, T, D). real: (B, T).`` speaks of arguments, ``the weights: (L, H, T, T)`` of
what comes back, and a comment behind an assignment of what is assigned. A letter is one
size within a docstring, and that of a variable or a module of its name. A table of
names and their shapes is held in the same way against the variables of a run.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.flows.sizes import SIZES
from bookbinder.reading.pages import Chain, Page, Problem
from bookbinder.reading.prose import prose_lines
from bookbinder.reading.seen import Seen, Shape

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

    Without names it is said of something that comes back, or of any variable.
    """

    function: int
    shapes: list[_Mention]


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
            ends = [each for each in ran if each.line == said.function]
            reasons = filter(None, (_wrong(said, each) for each in ends))
            for line, reason in [*reasons][:1]:
                problems.append(Problem(page.path, line, reason))
    return [*problems, *_table_problems(page, seen)]


def _said(chain: Chain) -> Iterator[_Said]:
    """Give all shapes that the code of a chain speaks of."""
    try:
        trees = [ast.parse(block.code) for block in chain.blocks]
    except SyntaxError:
        return  # That is told as what it is.
    stored = [name for tree in trees for name in _stored(tree)]
    for block, tree in zip(chain.blocks, trees, strict=True):
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for node in functions:
            text = ast.get_docstring(node, clean=False)
            if text and (shapes := [*_in_docstring(text, block.line, node)]):
                yield _Said(block.line + _begin(node), shapes)
        for line, comment in _comments(block.code):
            inner = [n for n in functions if n.lineno <= line <= (n.end_lineno or 0)]
            within = max(inner, key=lambda node: node.lineno, default=None)
            names = _assigned(within or tree, line)
            # What is assigned anew below is another thing when the chain ends.
            if within is None:
                names = [name for name in names if stored.count(name) < 2]
            found = _shapes_in(comment)
            if names and len(found) == 1:
                begin = block.line + _begin(within) if within else 1
                yield _Said(begin, [(block.line + line, names, found[0], False)])


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


def _comments(code: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _assigned(tree: ast.AST, line: int) -> list[str]:
    """Give what is assigned by a statement that ends in a line, if it has one name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.end_lineno == line:
            return [each.id for each in node.targets if isinstance(each, ast.Name)]
    return []


def _stored(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _wrong(said: _Said, seen: Seen) -> tuple[int, str] | None:
    """Say what is wrong with a docstring, or with a comment, for one call."""
    # In self-attention there are as many keys as queries, whatever S is elsewhere.
    sizes = {name: n for name, n in seen.sizes.items() if name in SIZES.keys() - {"S"}}
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
