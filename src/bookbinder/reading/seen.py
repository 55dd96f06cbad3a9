"""What the functions of a page had under their names when they first ran: its shapes.

Also the sizes that their letters stand for, as far as a run says so: a variable that is
called as the letter is, or an attribute of a module, as ``model.config.num_heads``.
And, for comments behind code, what there was right after their lines.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from bookbinder.reading.pages import Chain

__all__ = ["Noted", "Noting", "Remark", "Seen", "Shape", "note_frame", "remarks"]

Shape = tuple[int, ...]

# Under what names code has the letters of Notation.
_LETTERS = {
    **{"num_heads": "H", "num_kv_heads": "H_kv", "head_dim": "d_k", "d_model": "D"},
    **{"num_layers": "L", "vocab_size": "V", "d_ff": "d_ff"},
}
_MOST = 8  # things that a function returns, or a list has, that are looked at
_FEW = 16  # numbers that a reader can look through
_TIMES = 3  # that a line of a function is noted; one outside of functions, once


@dataclass
class Seen:
    """A function of a page, or the lines of a chain, when they ended.

    ``line`` is its first line on the page, 1 for the lines of a chain; ``values`` are
    the shapes of arguments and variables, ``returned`` those of what came back, and
    ``sizes`` what letters stand for.
    """

    line: int
    values: dict[str, list[Shape]] = field(default_factory=dict[str, list[Shape]])
    returned: list[Shape] = field(default_factory=list[Shape])
    sizes: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Noted(Seen):
    """What a frame had right after a statement; ``line`` is where that ends.

    ``values`` are the shapes under the names of the statement, and ``numbers`` what is
    small under them: a number, those in a short list or tensor, how long a list is;
    and every variable that is an integer.
    """

    numbers: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


@dataclass(frozen=True)
class Remark:
    """A comment behind code: its line on the page, its words, and its statement.

    ``first`` and ``last`` are the lines of the statement, or of the head of one that
    has others in it; ``assigned`` are the names that it gives a value, ``named`` all.
    """

    line: int
    text: str
    block: int
    node: ast.stmt
    first: int
    last: int
    assigned: tuple[str, ...]
    named: frozenset[str]


def remarks(chain: Chain) -> list[Remark]:
    """Give the comments behind the code of a chain; none if it cannot be parsed."""
    found: list[Remark] = []
    for block in chain.blocks:
        with suppress(SyntaxError):
            tree = ast.parse(block.code)
            for token in tokenize.generate_tokens(io.StringIO(block.code).readline):
                behind = token.line[: token.start[1]].strip()
                if token.type == tokenize.COMMENT and behind:
                    found += _remark(token, tree, block.line)
    return found


def _remark(token: tokenize.TokenInfo, tree: ast.Module, begin: int) -> list[Remark]:
    line, found = token.start[0], None
    for node in ast.walk(tree):
        # Those within others come after them.
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            found = node
    if found is None:
        return []
    inner = [n for n in ast.iter_child_nodes(found) if isinstance(n, ast.stmt)]
    last = inner[0].lineno - 1 if inner else found.end_lineno or 0
    head = [n for n in _beside(found) if isinstance(n, ast.Name)]
    return [
        Remark(
            begin + line,
            token.string.lstrip("# "),
            begin,
            found,
            begin + found.lineno,
            begin + max(last, found.lineno),
            tuple(n.id for n in head if isinstance(n.ctx, ast.Store)),
            frozenset(n.id for n in head),
        )
    ]


def _beside(node: ast.stmt) -> Iterator[ast.AST]:
    """Give what belongs to a statement, but not to others in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from ast.walk(child)


class Noting:
    """Keeps what a piece of code had right after those of its lines with a comment.

    Args:
        code: The piece of code.
        awaited: The comments of its page.
        seen: What is kept.
    """

    def __init__(
        self, code: CodeType, awaited: Iterable[Remark], seen: list[Seen]
    ) -> None:
        own = {line for *_, line in code.co_lines() if line} - {code.co_firstlineno}
        self.lines = {
            n: r for r in awaited for n in own & {*range(r.first, r.last + 1)}
        }
        self.seen = seen
        self.under: dict[FrameType, Remark] = {}
        self.often = Counter[int]()
        self.times = 1 if code.co_name == "<module>" else _TIMES

    def step(self, frame: FrameType, line: int = 0) -> bool:
        """Take the line that comes next, 0 where none does; say if more is awaited."""
        remark = self.under.get(frame)
        if remark and not remark.first <= line <= remark.last:
            del self.under[frame]
            self.seen.append(_note_line(frame, remark))
            self.often[remark.last] += 1
            if self.often[remark.last] == self.times:
                for done in [n for n, r in self.lines.items() if r.last == remark.last]:
                    del self.lines[done]
        if line in self.lines:
            self.under[frame] = self.lines[line]
        return bool(self.lines or self.under)


def _note_line(frame: FrameType, remark: Remark) -> Noted:
    every = note_frame(frame, None)
    own = {**frame.f_globals, **frame.f_locals}
    integers = {name: [float(n)] for name, n in own.items() if type(n) is int}
    own = {name: own[name] for name in remark.named & own.keys()}
    shapes = {name: [*_shapes(value)] for name, value in own.items()}
    return Noted(
        remark.last,
        {name: those for name, those in shapes.items() if those},
        [],
        every.sizes,
        {n: few for n, value in own.items() if (few := [*_small(value)])} | integers,
    )


def _small(value: Any) -> Iterator[float]:
    """Give a number, those in what is short, and how long it is."""
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        with suppress(Exception):  # Shapes without numbers have no list.
            value = value.tolist() if value.numel() <= _FEW else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)
    elif isinstance(value, (str, list, tuple, dict, set)):
        yield float(len(value))
        for each in value if len(value) <= _FEW and not isinstance(value, str) else ():
            if isinstance(each, (int, float, list, tuple)):
                yield from _small(each)


def note_frame(frame: FrameType, returned: Any) -> Seen:
    """Keep the shapes of a frame that ends."""
    own = dict(frame.f_locals)
    values = {name: [*_shapes(value)] for name, value in own.items()}
    every = [*own.values()]
    if frame.f_locals is not frame.f_globals:
        every += [value for value in frame.f_globals.values() if _is_module(value)]
    return Seen(
        frame.f_code.co_firstlineno,
        {name: shapes for name, shapes in values.items() if shapes},
        [*_shapes(returned)],
        {**_sizes_of(every), **{n: v for n, v in own.items() if type(v) is int}},
    )


def _shapes(value: Any, depth: int = 0) -> Iterator[Shape]:
    """Give the shape of a tensor, or those of the tensors in a list."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        yield tuple(map(int, shape))
    elif isinstance(value, (list, tuple)) and depth < 2:
        for each in value[:_MOST]:
            yield from _shapes(each, depth + 1)


def _is_module(value: Any) -> bool:
    return hasattr(value, "named_modules") and not isinstance(value, type)


def _sizes_of(values: list[Any]) -> Mapping[str, int]:
    """Give the sizes of modules, but for letters that two of them have otherwise."""
    found: dict[str, set[int]] = {}
    for value in filter(_is_module, values):
        for place in (value, getattr(value, "config", None)):
            for name, letter in _LETTERS.items():
                size = getattr(place, name, None)
                if type(size) is int:
                    found.setdefault(letter, set()).add(size)
    return {letter: sizes.pop() for letter, sizes in found.items() if len(sizes) == 1}
