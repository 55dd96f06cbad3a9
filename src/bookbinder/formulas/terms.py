"""What a formula is made of, once it is read."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "WRITTEN",
    "Cases",
    "Lookup",
    "Matrix",
    "Named",
    "Number",
    "Over",
    "Power",
    "Product",
    "Raw",
    "Statement",
    "Sum",
    "Symbol",
    "Term",
    "parts_of",
    "symbols_in",
]


# Functions that have a sign of their own, and no name.
WRITTEN = {"floor", "fraction", "length", "root", "to", "!"}


class Term:
    """A part of a formula that has a value; two that are written alike are equal."""


@dataclass(frozen=True)
class Number(Term):
    """A number as it is written."""

    value: float


@dataclass(frozen=True)
class Symbol(Term):
    """A letter or a word, and what it is the entry of: ``W^Q_h``, ``e_{ts}``."""

    name: str
    index: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Named(Term):
    r"""A function and what it is taken of: ``\exp e``, ``softmax(E)``, ``g(h)``."""

    function: Symbol
    of: tuple[Term, ...]


@dataclass(frozen=True)
class Lookup(Term):
    """Entries of a table, in brackets: ``W^E[token]``."""

    table: Term
    at: Term


@dataclass(frozen=True)
class Sum(Term):
    """Terms with their signs."""

    terms: tuple[tuple[int, Term], ...]


@dataclass(frozen=True)
class Product(Term):
    """A first factor, and others behind a sign: "" where they stand side by side."""

    first: Term
    others: tuple[tuple[str, Term], ...]


@dataclass(frozen=True)
class Power(Term):
    """A power; transposed, if the exponent is nothing."""

    base: Term
    exponent: Term | None


@dataclass(frozen=True)
class Over(Term):
    """A sum, a product or a largest value over what stands below the sign."""

    sign: str
    counter: str
    low: Term | None
    high: Term | None
    condition: "Statement | None"
    body: Term


@dataclass(frozen=True)
class Matrix(Term):
    """Rows of entries, which may be matrices themselves."""

    rows: tuple[tuple[Term, ...], ...]


@dataclass(frozen=True)
class Cases(Term):
    """Values, each with its condition; the last may have none."""

    cases: tuple[tuple[Term, "Statement | Raw | None"], ...]


@dataclass(frozen=True)
class Raw(Term):
    """What only a person can read."""

    text: str


@dataclass(frozen=True)
class Statement(Term):
    r"""Sides, and the signs between them: ``a = b \le c``."""

    sides: tuple[Term, ...]
    signs: tuple[str, ...] = ()


def parts_of(term: object) -> Iterator[Term]:
    """Give a term and all that is in it, the whole before its parts."""
    if isinstance(term, tuple):
        for each in term:
            yield from parts_of(each)
    elif isinstance(term, Term):
        yield term
        for field in vars(term).values():
            yield from parts_of(field)


def symbols_in(term: object) -> Iterator[Symbol]:
    """Give the symbols of a term, the names of its functions too."""
    for part in parts_of(term):
        if isinstance(part, Symbol) and part.name not in WRITTEN:
            yield part
