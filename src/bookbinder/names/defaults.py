"""Hold what is said to be a default against the signatures of the library and PyTorch.

That `fused=True` is the default is right if an argument of this name has this default
somewhere, and so it is if `fused` is said to be `True` by default.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

from torch import nn

from bookbinder.names.resolving import LIBRARY
from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["default_problems"]

_SAID = re.compile(
    r"`(?P<name>[a-z]\w*)=(?P<value>[^`]+)`, the default"
    r"|`(?P<other>[a-z]\w*)`, by default `(?P<its>[^`]+)`"
)
# Those of PyTorch that the book calls by name.
_THEIRS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def default_problems(page: Page) -> list[Problem]:
    """Find values that are said to be defaults, and are none."""
    problems: list[Problem] = []
    for number, line in prose_lines(page):
        for said in _SAID.finditer(line):
            name, value = said["name"] or said["other"], said["value"] or said["its"]
            known = _defaults().get(name, frozenset())
            if value not in known:
                there = " or ".join(sorted(known)) or "none"
                reason = f"`{name}`: its default is {there}, and not {value}"
                problems.append(Problem(page.path, number, reason))
    return problems


@cache
def _defaults() -> dict[str, frozenset[str]]:
    """Give the defaults that arguments have, by their names."""
    found: dict[str, set[str]] = {}
    for file in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for name, default in _signed(node):
                found.setdefault(name, set()).add(ast.unparse(default))
    for kind in _THEIRS:
        for call in (kind.__init__, kind.forward):
            for name, each in inspect.signature(call).parameters.items():
                if each.default is not each.empty:
                    found.setdefault(name, set()).add(repr(each.default))
    return {name: frozenset(values) for name, values in found.items()}


def _signed(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Give the arguments of a function that have defaults, or the field of a class."""
    match node:
        case ast.arguments():
            places = [*node.posonlyargs, *node.args]
            with_default = places[len(places) - len(node.defaults) :]
            pairs = [*zip(with_default, node.defaults, strict=True)]
            pairs += [
                (argument, default)
                for argument, default in zip(
                    node.kwonlyargs, node.kw_defaults, strict=True
                )
                if default
            ]
            yield from ((argument.arg, default) for argument, default in pairs)
        case ast.AnnAssign(ast.Name(name), _, ast.expr() as default):
            yield name, default
        case _:
            pass
