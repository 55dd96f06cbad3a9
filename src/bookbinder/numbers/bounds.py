"""Where a comparison in a binding says that a number lies, as ``740 < length < 760``.

The run can only say that it is so. That the number of the page lies there too has to be
asked as well: or the page could say 800 meters, and be told that all is well.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import NamedTuple

__all__ = ["Bounds", "bounds_of"]


class Bounds(NamedTuple):
    """The least and the greatest that a comparison allows."""

    least: float
    greatest: float

    def __contains__(self, value: object) -> bool:
        """Tell whether a number lies there, or at the edge."""
        return isinstance(value, float | int) and self.least <= value <= self.greatest


def bounds_of(expression: str) -> Bounds | None:
    """Give the bounds that an expression names as plain numbers; none: nothing."""
    try:
        comparison = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None  # What evaluates it says so.
    if not isinstance(comparison, ast.Compare):
        return None
    edges = [*_edges(comparison)]
    least = max((low for low, _ in edges), default=-inf)
    greatest = min((high for _, high in edges), default=inf)
    return None if (least, greatest) == (-inf, inf) else Bounds(least, greatest)


def _edges(comparison: ast.Compare) -> Iterator[tuple[float, float]]:
    """Give what each sign of a comparison allows: a least and a greatest."""
    terms = [comparison.left, *comparison.comparators]
    for left, sign, right in zip(terms, comparison.ops, terms[1:], strict=False):
        small, large = (
            (left, right) if isinstance(sign, ast.Lt | ast.LtE) else (right, left)
        )
        if isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            yield _plain(small, -inf), _plain(large, inf)


def _plain(term: ast.expr, otherwise: float) -> float:
    """Give the value of a term in which nothing is a name, as 2**7 or 1 / 3."""
    if all(
        isinstance(
            each, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
        )
        for each in ast.walk(term)
    ):
        with suppress(ArithmeticError, TypeError, ValueError):
            return float(eval(compile(ast.Expression(term), "<bound>", "eval")))
    return otherwise
