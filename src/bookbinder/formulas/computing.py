r"""Compute a formula from the values of its letters, for all values of its indices.

An array has one axis for each index of the formula, of length 1 where it does not
depend on it, and behind these the axes of what it is: none for a number, one for a row,
two for a matrix. So $a_{ts}$ is computed for all $t$ and $s$ at once.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bookbinder.formulas.letters import Letters
from bookbinder.formulas.terms import (
    Cases,
    Lookup,
    Matrix,
    Named,
    Number,
    Over,
    Power,
    Product,
    Raw,
    Statement,
    Sum,
    Symbol,
    Term,
    parts_of,
    symbols_in,
)
from bookbinder.formulas.values import (
    FUNCTIONS,
    Array,
    UnfitError,
    Value,
    added,
    aligned,
    applied,
    compared,
    joined,
    times,
    to_the_power,
)

__all__ = ["Formula", "UnboundError"]

_CONSTANTS = {r"\pi": math.pi, r"\infty": math.inf}
_MOST = 64  # values of an index, beyond which none is tried


class UnboundError(LookupError):
    """A letter without a value."""


class Formula(Letters):
    """A statement and the values of its letters.

    Args:
        statement: What is stated.
        known: The value of each letter, or of a whole term that stands in it.

    Raises:
        UnboundError: If nothing says how far an index counts.
    """

    def __init__(self, statement: Statement, known: Mapping[Term, Array]) -> None:
        super().__init__(known)
        self.statement = statement
        self._axes = {name: n for n, name in enumerate(self.counting(statement))}
        self._counts: dict[str, Array] = {}
        for name in self._axes:
            self._counts[name] = self._counted(name)

    def holds(self) -> str | None:
        """Say where a side is not what the one before it is; nothing if all are."""
        sides = [self._compute(side) for side in self.statement.sides]
        pairs = zip(sides, sides[1:], self.statement.signs, strict=False)
        for number, (left, right, sign) in enumerate(pairs):
            if sign == "←":
                before = self.statement.sides[number]
                assert isinstance(before, Symbol)
                left = self._compute(Symbol(f"{before.name}'", before.index))
            # A row is no number, but all of its entries may be 0.
            numbers = any(isinstance(side, Number) for side in self.statement.sides)
            if left.rank != right.rank and not numbers:
                return f"one side is {left}, the other {right}"
            try:
                one, other = np.broadcast_arrays(*aligned(left, right))
            except ValueError:
                return f"one side is {left}, the other {right}"
            right_ones = compared(one, other, sign)
            if not right_ones.all():
                at = tuple(int(i) for i in np.argwhere(~right_ones)[0])
                where = [
                    f"{name} = {self._counts[name].flat[at[axis]]:.0f}"
                    for name, axis in self._axes.items()
                    if one.shape[axis] > 1
                ]
                place = f" at {', '.join(where)}" if where else ""
                return f"{one[at]:.6g} {sign} {other[at]:.6g} is not so{place}"
        return None

    def _counted(self, name: str) -> Array:
        """Count as far as all that it is an index of."""
        for part in parts_of(self.statement):
            if isinstance(part, Over) and part.counter == name and part.high:
                low = self._number(part.low) if part.low else 0
                return self._along(np.arange(low, self._number(part.high) + 1), name)
        fit: set[int] | None = None
        for part in parts_of(self.statement):
            for size, at in self.uses(part):
                named = {each.name for each in symbols_in(at) if not self.has(each)}
                if named == {name}:
                    can = {n for n in range(_MOST) if 0 <= self._at(at, name, n) < size}
                    fit = can if fit is None else fit & can
        if not fit:
            raise UnboundError(f"nothing says how far {name} counts")
        return self._along(np.array(sorted(fit)), name)

    def _at(self, term: Term, name: str, value: int) -> float:
        inner = dict(self.known)
        inner[Symbol(name)] = np.array(float(value))
        try:
            return float(Formula(Statement((term,)), inner)._compute(term).array)
        except UnfitError:
            return -1.0

    def _along(self, values: NDArray[Any], name: str) -> Array:
        shape = [1] * len(self._axes)
        shape[self._axes[name]] = -1
        return values.astype(float).reshape(shape)

    def _symbol(self, symbol: Symbol) -> Value:
        if not symbol.index and symbol.name in self._counts:
            return Value(self._counts[symbol.name], 0)
        if symbol == Symbol("e"):
            return self._value(np.array(math.e))  # with an index it is a score
        if self.is_name(symbol):
            return self._value(self.known[symbol])
        if symbol in self.known:
            table = self._value(self.known[symbol])
            return self._entries(table, symbol.index, symbol.name)
        table = self.table(symbol.name) if symbol.index else None
        if table is not None:
            return self._entries(self._value(table), symbol.index, symbol.name)
        if not symbol.index and symbol.name in _CONSTANTS:
            return self._value(np.array(_CONSTANTS[symbol.name]))
        raise UnboundError(f"{symbol.name} has no value")

    def _value(self, array: Array) -> Value:
        lead = (1,) * len(self._axes)
        return Value(array.reshape((*lead, *array.shape)), array.ndim)

    def _entries(self, table: Value, index: tuple[Term, ...], name: str) -> Value:
        array = table.array.reshape(table.shape)
        if len(index) > array.ndim:
            raise UnfitError(f"{name} has {array.ndim} axes and {len(index)} indices")
        if isinstance(index[0], Named) and index[0].function.name == "to":
            first, last = (int(self._number(each)) for each in index[0].of)
            return self._value(array[first : last + 1])
        places: list[NDArray[np.int64]] = []
        for size, each in zip(array.shape, index, strict=False):
            place = self._compute(each).array
            if ((place < 0) | (place >= size)).any():
                raise UnfitError(f"an index of {name} leaves it")
            places.append(place.astype(int))
        return Value(
            array[tuple(np.broadcast_arrays(*places))], array.ndim - len(index)
        )

    def _number(self, term: Term) -> float:
        value = self._compute(term)
        if value.array.size != 1:
            raise UnboundError("a bound that depends on an index")
        return float(value.array.reshape(()))

    def _compute(self, term: Term) -> Value:
        if not isinstance(term, Symbol) and term in self.known:
            return self._opaque(term, self.known[term])
        match term:
            case Number(value):
                return self._value(np.array(value))
            case Symbol():
                return self._symbol(term)
            case Named():
                return self._named(term)
            case Lookup(table, at):
                found, rows = self._compute(table), self._compute(at)
                if rows.rank:
                    places = rows.array.reshape(-1).astype(int)
                    return self._value(found.array.reshape(found.shape)[places])
                return self._entries(found, (at,), "a table")
            case Sum(terms):
                return added([(sign, self._compute(each)) for sign, each in terms])
            case Product(first, others):
                value = self._compute(first)
                for sign, other in others:
                    value = times(value, sign, self._compute(other))
                return value
            case Power(base, exponent):
                return self._power(base, exponent)
            case Over():
                return self._over(term)
            case Matrix(rows):
                cells = [[self._compute(each) for each in row] for row in rows]
                return joined(cells, len(self._axes))
            case Cases(cases):
                return self._cases(cases)
            case Raw(text):
                raise UnboundError(f"{text} is for people")
            case _:
                raise UnboundError("nothing that has one value")

    def _opaque(self, term: Term, array: Array) -> Value:
        """Give the value of a whole term, at the indices that stand in it."""
        index = self.indices_of(term)
        value = self._value(array)
        return self._entries(value, index, "a term") if index else value

    def _power(self, base: Term, exponent: Term | None) -> Value:
        value = self._compute(base)
        if exponent is not None:
            return to_the_power(value, self._compute(exponent))
        turned = value.array.swapaxes(-1, -2) if value.rank == 2 else value.array
        return Value(turned, value.rank)

    def _named(self, term: Named) -> Value:
        name = term.function.name
        if name == "fraction":
            above, below = map(self._compute, term.of)
            return times(above, "/", below)
        values = [self._compute(each) for each in term.of]
        if name in FUNCTIONS:
            base = [self._compute(each) for each in term.function.index]
            return applied(name, [*values, *base])
        table = self.table(name)
        if table is not None and table.ndim >= len(term.of):
            return self._entries(self._value(table), term.of, name)
        if table is not None and len(values) == 1:
            return times(self._symbol(term.function), "", values[0])
        raise UnboundError(f"{name} has no value")

    def _over(self, term: Over) -> Value:
        value = self._compute(term.body)
        many = {r"\sum": np.sum, r"\prod": np.prod, r"\max": np.max, r"\min": np.min}
        reduce: Callable[..., Any] = many[term.sign]
        if not term.counter:
            axes = tuple(range(len(self._axes), value.array.ndim))
            return Value(reduce(value.array, axis=axes), 0)
        axis = self._axes[term.counter]
        shape = list(value.array.shape)
        shape[axis] = self._counts[term.counter].shape[axis]
        array = np.broadcast_to(value.array, shape)
        if term.condition:
            left, right = map(self._compute, term.condition.sides)
            mask = compared(left.array, right.array, term.condition.signs[0])
            mask = mask.reshape((*mask.shape, *((1,) * value.rank)))
            nothing = {r"\sum": 0.0, r"\prod": 1.0, r"\max": -np.inf, r"\min": np.inf}
            array = np.where(mask, array, nothing[term.sign])
        return Value(reduce(array, axis=axis, keepdims=True), value.rank)

    def _cases(self, cases: tuple[tuple[Term, Statement | Raw | None], ...]) -> Value:
        result: Any = np.nan
        for value, condition in reversed(cases):
            array = self._compute(value).array
            if isinstance(condition, Raw):
                raise UnboundError(f"{condition.text} is for people")
            if condition is None:
                result = array
            else:
                left, right = map(self._compute, condition.sides)
                mask = compared(left.array, right.array, condition.signs[0])
                result = np.where(mask, array, result)
        return Value(result, 0)
