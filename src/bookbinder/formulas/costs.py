r"""Hold the sums of sizes that stand alone, as what something costs, against a run.

$4D^2 + 4D$ states no equation, and yet it is right or wrong. It is a term of a
``where`` that a run gives its value, and is computed there; or it stands in a column of
a table, and what is written in the column adds up to the value of its heading::

    <!-- where: D = 512; 4D^2 + 4D = count_parameters(layer) -->
    <!-- where: D = 16; S = 5; \text{additions} = counts["+"] -->
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bookbinder.formulas.computing import Formula, UnboundError
from bookbinder.formulas.cutting import UnreadableError
from bookbinder.formulas.statements import read_term
from bookbinder.formulas.terms import (
    Statement,
    Sum,
    Symbol,
    Term,
    parts_of,
    symbols_in,
)
from bookbinder.formulas.values import UnfitError
from bookbinder.reading.pages import Page
from bookbinder.reading.prose import prose_lines

__all__ = ["columns", "is_uncounted"]

# The letters with which Notation counts.
_SIZES = {*"BHTSDLVN", "d_k", "d_v", "d_ff", "H_kv", "T_max"}
_CELL = re.compile(r"(?<!\\)\|")
_FORMULA = re.compile(r"\$([^$]+)\$")
_Known = Mapping[Term, NDArray[np.float64]]


def is_uncounted(term: Term, known: Sequence[_Known]) -> bool:
    """Tell whether a term adds up sizes, and is computed from no values of a run."""
    letters = {*symbols_in(term)}
    if not letters or {_name(each) for each in letters} - _SIZES:
        return False
    if not any(isinstance(part, Sum) and _adds(part) for part in parts_of(term)):
        return False
    return not any(term in values and letters <= values.keys() for values in known)


def _adds(term: Sum) -> bool:
    lettered = [sign for sign, each in term.terms if any(symbols_in(each))]
    return len(lettered) > 1 and min(lettered) > 0


def _name(symbol: Symbol) -> str:
    index = "".join(each.name for each in symbol.index if isinstance(each, Symbol))
    return f"{symbol.name}_{index}" if symbol.index else symbol.name


def columns(page: Page, known: Sequence[_Known]) -> Iterator[tuple[set[int], str]]:
    """Add up the columns of tables of whose heading a run gives the value.

    Args:
        page: The page.
        known: The values of each ``where``.

    Returns:
        For each such column the lines of its table, and what is wrong, if anything is.
    """
    for table in _tables(page):
        _, head = table[0]
        for column, heading in enumerate(head):
            cells = [row[column] for _, row in table[2:] if column < len(row)]
            for values in known:
                if Symbol(heading) in values:
                    lines = {line for line, _ in table}
                    yield lines, _added_up(cells, Symbol(heading), values)


def _added_up(cells: list[str], heading: Symbol, values: _Known) -> str:
    try:
        terms = tuple((1, _term(cell)) for cell in cells if cell)
        whole = Statement((Sum(terms), heading), ("=",))
        told = Formula(whole, values).holds()
    except (UnboundError, UnfitError, UnreadableError) as error:
        return f"the column {heading.name!r} cannot be added up: {error}"
    return f"the column {heading.name!r} does not add up: {told}" if told else ""


def _tables(page: Page) -> Iterator[list[tuple[int, list[str]]]]:
    """Give the rows of each table, cell by cell, with their lines."""
    table: list[tuple[int, list[str]]] = []
    for number, line in [*prose_lines(page), (0, "")]:
        if line.startswith("|"):
            cells = _CELL.split(line.strip().strip("|"))
            table.append((number, [cell.strip() for cell in cells]))
        elif table:
            yield table
            table = []


def _term(cell: str) -> Term:
    """Read a cell: its one formula, or a number."""
    formula = _FORMULA.fullmatch(cell)
    return read_term(formula[1] if formula else cell)
