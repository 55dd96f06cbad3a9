"""What the code of a block says of a bound is the bound that it asks about.

``print("above 0.97:", share > 0.97)`` prints a claim and whether it is so. Who changes
one of the two and not the other has printed something else than was computed, and no
output would show it.
"""

import ast
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

__all__ = ["claim_problems"]

_BOUND = re.compile(
    r"\b(?:(?P<low>over|above|more than|at least)"
    r"|(?P<high>under|below|less than|at most))"
    r" (?P<number>\d+/\d+|\d+(?:\.\d+)?(?:e-?\d+)?)(?P<share> ?%)?(?![\w/])"
)
_UPWARD, _DOWNWARD = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)


def claim_problems(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the claims of bounds that are not asked about, each with its line."""
    for node in ast.walk(tree):
        for text, test in _said(node):
            compared = [
                each for each in ast.walk(test) if isinstance(each, ast.Compare)
            ]
            for claim in _BOUND.finditer(text) if len(compared) == 1 else ():
                if not _asks(compared[0], claim):
                    asked = ast.unparse(compared[0])
                    yield test.lineno, f"{claim[0]!r} is said, and {asked} is asked"


def _said(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Give a text with the test that it stands beside, or that decides about it."""
    match node:
        case ast.IfExp(test, ast.Constant(str(text))):
            yield text, test
        case ast.Call(_, [ast.Constant(str(text)), test, *_]):
            yield text, test
        case ast.JoinedStr(values):
            for one, other in pairwise(values):
                match one, other:
                    case ast.Constant(str(text)), ast.FormattedValue(test):
                        yield text, test
                    case _:
                        pass
        case _:
            pass


def _asks(test: ast.Compare, claim: re.Match[str]) -> bool:
    """Tell whether a comparison has the bound of a claim, and looks its way."""
    bound = Fraction(claim["number"])
    known = {
        Fraction(str(each.value))
        for each in ast.walk(test)
        if isinstance(each, ast.Constant) and type(each.value) in (int, float)
    }
    if claim["share"]:
        known = {100 * each for each in known}
    if len(test.ops) > 1:
        return bound in known
    # With the bound before the sign, what is above it is on the other side.
    before, after = _has_number(test.left), any(map(_has_number, test.comparators))
    upward = bool(claim["low"]) != (before and not after)
    return bound in known and isinstance(test.ops[0], _UPWARD if upward else _DOWNWARD)


def _has_number(side: ast.expr) -> bool:
    return any(isinstance(each, ast.Constant) for each in ast.walk(side))
