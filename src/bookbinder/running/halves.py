"""Parts of a line that may never run while the line does.

A line is executed when a lambda on it is made, when one half of its ``… if … else …``
is taken, when a comprehension finds nothing to go through. A reader sees all of it.
"""

import ast
from collections.abc import Iterator
from types import CodeType

__all__ = ["Part", "offsets", "parts"]

Part = tuple[int, int, int, int]
"""Line and column where a part begins, line and column where it ends."""


def parts(source: str) -> dict[Part, str]:
    """Give the parts of a program that have to run by themselves, and what they are."""
    found: dict[Part, str] = {}
    for node, what in _asked(ast.parse(source)):
        end = node.end_lineno or 0, node.end_col_offset or 0
        found[node.lineno, node.col_offset, *end] = what
    return found


def _asked(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    read = {id(function) for function in _read_not_run(tree)}
    for node in ast.walk(tree):
        if id(node) in read:
            continue
        match node:
            case ast.Lambda(body=body):
                yield body, "this lambda is never called"
            case ast.FunctionDef(body=body, lineno=line):
                yield from (
                    (each, "this function is never called")
                    for each in body
                    if each.lineno == line and not _is_idle(each)
                )
            case ast.IfExp(body=body, orelse=orelse):
                for half in (body, orelse):
                    if not isinstance(half, ast.Constant):
                        yield half, "this half of the condition never runs"
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield node.elt, "this is never made: there is nothing to go through"
            case ast.DictComp():
                yield node.value, "this is never made: there is nothing to go through"
            case _:
                pass


def _read_not_run(tree: ast.Module) -> Iterator[ast.expr]:
    """Give the functions for FlexAttention, which it translates instead of calling."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (
                keyword.value
                for keyword in node.keywords
                if keyword.arg in ("score_mod", "mask_mod")
            )
            if isinstance(node.func, ast.Name) and node.func.id == "create_block_mask":
                yield from node.args[:1]


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def offsets(code: CodeType, asked: dict[Part, str]) -> dict[int, list[Part]]:
    """Give the instructions of a piece of code that belong to asked parts."""
    found: dict[int, list[Part]] = {}
    if not asked:
        return found
    for index, (line, end_line, column, end_column) in enumerate(code.co_positions()):
        if None in (line, end_line, column, end_column):
            continue
        start, end = (line, column), (end_line, end_column)
        within = [p for p in asked if p[:2] <= start and end <= p[2:]]
        if within:
            found[2 * index] = within
    return found
