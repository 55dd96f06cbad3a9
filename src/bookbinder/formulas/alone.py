r"""Hold formulas that state no equation: $A^\top G$, $2 L H d_k$, $a (1 - a)$.

Each computes something, and that is right or wrong. So it is a part of an equation
that is held, or of a term of a ``where``, to which a run gives its value; or code that
the page shows computes the same, in the names that Notation gives to letters.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from bookbinder.formulas.fingerprints import print_of, prints_in
from bookbinder.formulas.terms import (
    WRITTEN,
    Cases,
    Matrix,
    Named,
    Number,
    Product,
    Raw,
    Sum,
    Symbol,
    Term,
    parts_of,
)
from bookbinder.formulas.values import FUNCTIONS

__all__ = ["Held", "says_something"]

_NUMBERS = {"e", r"\pi", r"\infty"}
_SIGNS = {"fraction", "root"}
_UNCOMPUTED = {r"\times", r"\ldots", r"\dots"}


def says_something(term: Term) -> bool:
    r"""Tell whether a term computes something: not $f(x)$, $2D$ or $T \times S$."""
    letters = [*_letters(term)]
    named = {each.name for each in letters} - _NUMBERS
    if not named or named & _UNCOMPUTED or isinstance(term, Symbol | Matrix | Raw):
        return False
    parts = [*parts_of(term)]
    if any(isinstance(part, Cases) for part in parts):
        return False  # What holds where is for people.
    if isinstance(term, Named) and term.function.name not in FUNCTIONS | _SIGNS:
        return any(isinstance(part, Sum | Product) for part in parts)
    return len(letters) > 1 or sum(map(_weighs, parts)) > 1


def _weighs(part: Term) -> bool:
    """Tell what is more than a letter and the sign between it and another."""
    signs = FUNCTIONS | _SIGNS - {"fraction"}
    called = isinstance(part, Named) and part.function.name in signs
    divided = isinstance(part, Product) and any(sign == "/" for sign, _ in part.others)
    return called or divided or isinstance(part, Number)


def _without_their_sign(wholes: Iterable[Term]) -> set[Term]:
    """Give what stands behind a minus and nowhere else: without it, it is another."""
    parts = Counter(part for whole in wholes for part in parts_of(whole))
    return {
        each.terms[0][1]
        for each, count in parts.items()
        if isinstance(each, Sum)
        and len(each.terms) == 1
        and each.terms[0][0] < 0
        and parts[each.terms[0][1]] == count
    }


def _letters(term: object) -> Iterator[Symbol]:
    """Give the letters of a term, without what stands in their indices."""
    if isinstance(term, tuple):
        for each in term:
            yield from _letters(each)
    elif isinstance(term, Symbol):
        if term.name not in FUNCTIONS | WRITTEN:
            yield term
    elif isinstance(term, Term):
        yield from _letters(tuple(vars(term).values()))


class Held:
    """What stands behind the formulas of a page that state no equation.

    Args:
        wholes: The equations of the page, and the terms to which runs give values.
        programs: The code that the page shows.
    """

    def __init__(self, wholes: Iterable[Term], programs: Iterable[str]) -> None:
        wholes = [*wholes]
        self._parts = {part for whole in wholes for part in parts_of(whole)}
        self._parts -= _without_their_sign(wholes)
        self._prints = {print_of(part) for part in self._parts}
        self._prints |= {each for text in programs for each in prints_in(text)}

    def __contains__(self, term: Term) -> bool:
        """Tell whether a term is part of what is held, or what code computes."""
        if term in self._parts:
            return True
        found = print_of(term)
        return found is not None and found in self._prints
