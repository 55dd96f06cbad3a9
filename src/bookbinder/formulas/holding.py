r"""Hold every equation of a page against what its runs give.

A comment gives letters their values, under the heading of level 2 that it shares with
the formulas, in the names that the run above it has left::

    <!-- where: Q = q; K = k; d_k = 4; A = weights; \operatorname{N}(X) = norm(x) -->

A small letter with an index is an entry of the capital: $q_t$ is row $t$ of $Q$. A term
that is more than a letter is one that the formula has as it is, or, if its letters have
values, is computed and compared. An equation with letters that nothing computes is
given, as a whole: ``<!-- given: "$s \le t$": the definition -->``. A formula without
an equals sign is held against those that have one, against comments, and against code.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bookbinder.formulas.alone import Held, says_something
from bookbinder.formulas.computing import Formula, UnboundError
from bookbinder.formulas.costs import columns, is_uncounted
from bookbinder.formulas.cutting import UnreadableError
from bookbinder.formulas.letters import Letters
from bookbinder.formulas.statements import read_statements, read_term
from bookbinder.formulas.terms import (
    Over,
    Raw,
    Statement,
    Symbol,
    Term,
    parts_of,
    symbols_in,
)
from bookbinder.formulas.values import FUNCTIONS, UnfitError
from bookbinder.reading.bindings import Binding, Terms
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import Formula as InProse
from bookbinder.reading.prose import formulas, prose_lines

__all__ = ["formula_problems"]

# Whose tables say what signs mean.
_NOTATION = "docs/notation.md"
# Signs that are numbers already.
_NUMBERS = {"e", r"\pi", r"\infty"}
_Known = dict[Term, NDArray[np.float64]]


def formula_problems(
    page: Page, values: Mapping[int, Terms | str], root: Path
) -> list[Problem]:
    """Find equations that do not hold, and formulas that nothing computes.

    Args:
        page: The page.
        values: What its ``where`` comments gave when the page ran, by their lines.
        root: The repository.
    """
    parts = [n for n, line in prose_lines(page) if line.startswith("## ")]
    problems: list[Problem] = []
    known: list[_Known] = []
    for binding in page.bindings:
        if binding.kind == "where":
            try:
                read = _read(values.get(binding.line, "nothing evaluated it"))
            except ValueError as error:
                problems.append(Problem(page.path, binding.line, f"where: {error}"))
            else:
                known.append(read)
                problems += [
                    Problem(page.path, binding.line, f"where: {reason}")
                    for reason in _unlike(read)
                ]
    added_up = set[int]()
    for lines, reason in columns(page, known):
        added_up |= lines
        problems += [Problem(page.path, min(lines), reason)] if reason else []
    given = [each for each in page.bindings if each.kind == "given"]
    quoting = [each for each in page.bindings if each.kind == "holds"]
    every = [(formula, read_statements(formula.tex)) for formula in formulas(page)]
    held = _held(page, every, known, root)
    for formula, statements in every:
        part = _part(formula.line, parts)
        if _is_given(formula.tex, [g for g in given if _part(g.line, parts) == part]):
            continue
        for statement in statements:
            reason = _wrong(statement, known)
            if _is_bare(statement, held) and not (
                formula.line in added_up or _is_given(formula.tex, quoting)
            ):
                reason = _asked("nothing on this page computes it")
            if formula.line not in added_up and _is_a_cost(statement, known):
                reason = (
                    "this adds up sizes, and no run counts it: bind it with its "
                    f"letters, <!-- where: D = 12; {formula.tex} = count -->, or say "
                    'why no run can, <!-- given: "$…$": … -->'
                )
            if reason:
                written = " ".join(formula.tex.split())
                reason = f"${_short(written)}$: {reason}"
                problems.append(Problem(page.path, formula.line, reason))
    return problems


def _held(
    page: Page,
    every: list[tuple[InProse, list[Statement | Raw]]],
    known: list[_Known],
    root: Path,
) -> Held | None:
    """Give what stands behind formulas; nothing where nothing runs, or is defined."""
    if not page.blocks or page.path == _NOTATION:
        return None
    stated = [each for _, found in every for each in found if _has_sides(each)]
    terms = [term for values in known for term in values]
    return Held([*stated, *terms], _programs(page, root))


def _programs(page: Page, root: Path) -> Iterator[str]:
    """Give the code that a page shows: what it runs, and what it quotes."""
    yield from (block.code for block in page.blocks)
    for listing in page.listings:
        with suppress(ListingError):  # The audit has said so.
            yield find_section(root, listing.path, listing.section).text


def _has_sides(statement: Statement | Raw) -> bool:
    return isinstance(statement, Statement) and bool(statement.signs)


def _is_bare(statement: Statement | Raw, held: Held | None) -> bool:
    """Tell whether something is computed that stands on nothing."""
    if held is None or not isinstance(statement, Statement) or statement.signs:
        return False
    (side,) = statement.sides
    return says_something(side) and side not in held


def _part(line: int, parts: list[int]) -> int:
    return max((part for part in parts if part <= line), default=0)


def _read(value: Terms | str) -> _Known:
    if isinstance(value, str):
        raise ValueError(value)
    known: _Known = {}
    for tex, each in value.items():
        try:
            known[read_term(tex)] = np.array(each, dtype=float)
        except UnreadableError:
            raise ValueError(f"{tex} is no letter and nothing with a value") from None
    return known


def _is_given(tex: str, given: list[Binding]) -> bool:
    """Tell whether a comment quotes the whole formula, with its dollar signs."""
    wanted = "".join(tex.split())
    quotes = ("".join(quote.split()) for each in given for quote in each.quotes)
    return any(f"${wanted}$" in quote for quote in quotes)


def _unlike(known: _Known) -> Iterator[str]:
    """Compare the terms that are more than a letter with what their letters make."""
    for term, array in known.items():
        if isinstance(term, Symbol):
            continue
        rest = {other: value for other, value in known.items() if other != term}
        free = Letters(rest).indices_of(term)
        whole = Symbol(
            "\\where", tuple(at for at in free if at.name not in _over(term))
        )
        rest[Symbol(whole.name)] = array
        try:
            reason = Formula(Statement((term, whole), ("=",)), rest)
            told = reason.holds()
        except (UnboundError, UnfitError):
            continue
        if told:
            yield told


def _over(term: Term) -> set[str]:
    """Give what the sums of a term, and the like, run over."""
    return {each.counter for each in parts_of(term) if isinstance(each, Over)}


def _wrong(statement: Statement | Raw, known: list[_Known]) -> str | None:
    """Say what is wrong with a statement, if it is one that has to be computed."""
    if isinstance(statement, Raw):
        bare = re.sub(r"\\[A-Za-z]+", "", statement.text)
        if "=" not in bare or not re.search("[A-Za-z]", bare):
            return None
        return _asked(f"{statement.text} cannot be computed")
    if not statement.signs or not any(map(_is_compound, statement.sides)):
        return None
    wrong = missing = ""
    for values in known:
        try:
            reason = Formula(statement, values).holds()
        except UnboundError as error:
            missing = missing or str(error)
        except UnfitError as error:
            wrong = wrong or str(error)
        else:
            if not reason:
                return None
            wrong = reason
    return wrong or _asked(missing or "its letters have no values")


def _is_a_cost(statement: Statement | Raw, known: list[_Known]) -> bool:
    return (
        isinstance(statement, Statement)
        and not statement.signs
        and is_uncounted(statement.sides[0], known)
    )


def _asked(why: str) -> str:
    return (
        f"{why}: give its letters the values of a run, <!-- where: Q = q; K = k -->, "
        'or say why no run can, <!-- given: "$…$": … -->'
    )


def _is_compound(side: Term) -> bool:
    """Tell whether a side says something: more than a letter, and not numbers alone."""
    letters = {each.name for each in symbols_in(side)} - {*FUNCTIONS, *_NUMBERS}
    alone = isinstance(side, Symbol)
    return bool(letters) and not alone


def _short(tex: str) -> str:
    return tex if len(tex) <= 60 else f"{tex[:59]}…"
