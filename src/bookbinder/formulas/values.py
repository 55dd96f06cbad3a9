"""Numbers, rows and matrices, for many values of indices at once.

An array has one axis for each index, of length 1 where it does not depend on it, and
behind these the axes of what it is: none for a number, one for a row, two for a matrix.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FUNCTIONS",
    "Array",
    "UnfitError",
    "Value",
    "added",
    "aligned",
    "applied",
    "compared",
    "joined",
    "times",
    "to_the_power",
]

Array = NDArray[np.float64]

_EACH: dict[str, Callable[[Array], Array]] = {
    **{r"\exp": np.exp, r"\ln": np.log, r"\sin": np.sin, r"\cos": np.cos},
    **{r"\tanh": np.tanh, "floor": np.floor, "root": np.sqrt},
}
_SEVERAL: dict[str, Callable[[Array, Array], Array]] = {
    **{r"\max": np.maximum, r"\min": np.minimum},
}
FUNCTIONS = {*_EACH, *_SEVERAL, r"\log", "length", "softmax", "!"}


class UnfitError(ValueError):
    """Things that cannot be added or multiplied as they are."""


@dataclass(frozen=True)
class Value:
    """An array, and how many of its last axes are not those of indices."""

    array: Array
    rank: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of what it is."""
        return self.array.shape[self.array.ndim - self.rank :]

    def __str__(self) -> str:
        """Say what it is, as (4, 5)."""
        return f"({', '.join(map(str, self.shape))})" if self.rank else "a number"


def aligned(*values: Value) -> list[Array]:
    """Give numbers as many axes as the rows or matrices beside them."""
    rank = max(value.rank for value in values)
    return [
        value.array
        if value.rank
        else value.array.reshape((*value.array.shape, *(1,) * rank))
        for value in values
    ]


def added(terms: Sequence[tuple[int, Value]]) -> Value:
    """Add up values with their signs.

    Raises:
        UnfitError: If two are of different sizes.
    """
    values = [value for _, value in terms]
    sizes = {str(value) for value in values if value.rank}
    if len(sizes) > 1:
        raise UnfitError(f"{' and '.join(sorted(sizes))} are added")
    arrays = zip(terms, aligned(*values), strict=True)
    total: Any = sum(sign * array for (sign, _), array in arrays)
    return Value(total, max(value.rank for value in values))


def times(one: Value, sign: str, other: Value) -> Value:
    """Multiply as the sign says; divide, or take the remainder.

    Raises:
        UnfitError: If the two do not multiply.
    """
    if sign == "mod":
        return Value(np.mod(*aligned(one, other)), one.rank)
    if sign == "/":
        if other.rank:
            raise UnfitError(f"divided by {other}")
        first, second = aligned(one, other)
        with np.errstate(divide="ignore", invalid="ignore"):
            return Value(first / second, one.rank)
    if not one.rank or not other.rank or (sign == "⊙" and one.shape == other.shape):
        first, second = aligned(one, other)
        return Value(first * second, max(one.rank, other.rank))
    if one.rank == other.rank == 1 and sign == "":
        raise UnfitError(
            "two rows stand side by side: a dot or ⊙ between them? A sum of outer "
            r"products is a product of matrices, K^\top V"
        )
    inner = other.shape[max(-2, -other.rank)]
    if max(one.rank, other.rank) > 2 or sign == "⊙" or one.shape[-1] != inner:
        raise UnfitError(f"{one} and {other} do not multiply")
    left = one.array[..., None, :] if one.rank == 1 else one.array
    right = other.array[..., None] if other.rank == 1 else other.array
    product = left @ right
    if other.rank == 1:
        product = product[..., 0]
    if one.rank == 1:
        product = product[..., 0] if other.rank == 1 else product[..., 0, :]
    return Value(product, one.rank + other.rank - 2)


def to_the_power(value: Value, power: Value) -> Value:
    """Raise a number, or multiply a matrix with itself.

    Raises:
        UnfitError: If that means nothing.
    """
    if value.rank == 2 and power.array.size == 1:
        steps = int(power.array.reshape(()))
        return Value(np.linalg.matrix_power(value.array, steps), 2)
    if value.rank or power.rank:
        raise UnfitError(f"{value} to the power of {power}")
    with np.errstate(divide="ignore", invalid="ignore"):
        return Value(np.power(value.array, power.array), 0)


def applied(name: str, of: Sequence[Value]) -> Value:
    """Apply a function of ``FUNCTIONS``; the base of a logarithm stands last.

    Raises:
        UnfitError: If a logarithm has no base.
    """
    value = of[0]
    if name in _EACH:
        with np.errstate(divide="ignore", invalid="ignore"):
            return Value(_EACH[name](value.array), value.rank)
    if name in _SEVERAL:
        result = aligned(*of)[0]
        for other in aligned(*of)[1:]:
            result = _SEVERAL[name](result, other)
        return Value(result, max(each.rank for each in of))
    if name == r"\log":
        if len(of) == 1:
            raise UnfitError(r"\log has no base: write \ln, or \log_2")
        return Value(np.log(value.array) / np.log(of[1].array), value.rank)
    if name == "length":
        size = np.abs(value.array)
        return Value(np.linalg.norm(size, axis=-1) if value.rank else size, 0)
    if name == "!":
        return Value(np.vectorize(math.gamma)(value.array + 1), 0)
    # Softmax, over the last axis.
    powers = np.exp(value.array - value.array.max(axis=-1, keepdims=True))
    return Value(powers / powers.sum(axis=-1, keepdims=True), value.rank)


def joined(cells: list[list[Value]], indices: int) -> Value:
    """Put entries together: numbers to a row or a matrix, matrices to a larger one.

    Args:
        cells: Row by row.
        indices: How many axes are those of indices.
    """
    every = [cell for row in cells for cell in row]
    lead = np.broadcast_shapes(*(cell.array.shape[:indices] for cell in every))
    blocks = [
        [
            np.broadcast_to(cell.array, (*lead, *cell.shape)).reshape(
                (*lead, *(1,) * (2 - cell.rank), *cell.shape)
            )
            for cell in row
        ]
        for row in cells
    ]
    rows = [np.concatenate(row, axis=-1) for row in blocks]
    whole = np.concatenate(rows, axis=-2)
    if all(cell.rank == 0 for cell in every) and 1 in whole.shape[-2:]:
        return Value(whole.reshape((*lead, -1)), 1)
    if len(cells) == 1 and all(cell.rank <= 1 for cell in every):
        return Value(whole[..., 0, :], 1)
    return Value(whole, 2)


def compared(one: Array, other: Array, sign: str) -> NDArray[np.bool_]:
    """Tell where a relation holds, up to rounding in single precision."""
    near = np.isclose(one, other, rtol=2e-4, atol=1e-5, equal_nan=True)
    match sign:
        case "=" | "←":
            return near
        case "≈":
            return np.isclose(one, other, rtol=2e-2, atol=1e-5)
        case "≠":
            return ~near
        case "<":
            return (one < other) & ~near
        case ">":
            return (one > other) & ~near
        case "≤":
            return (one <= other) | near
        case _:
            return (one >= other) | near
