"""Numbers that remember how they were made, and so know their gradients."""

import math
from collections.abc import Sequence
from itertools import count, starmap
from operator import attrgetter, mul

__all__ = ["Scalar", "Vector", "dot"]

# --8<-- [start:scalar]
_births = count()


class Scalar:
    """A number that remembers its parents, the numbers it was made from.

    ``slopes`` has for each parent how fast ``value`` changes with it. ``grad`` is,
    after ``backward``, how fast the result changes with this number. ``born`` counts
    the numbers made before: a number is younger than its parents.
    """

    __slots__ = ("born", "grad", "parents", "slopes", "value")

    def __init__(
        self,
        value: float,
        parents: tuple["Scalar", ...] = (),
        slopes: tuple[float, ...] = (),
    ) -> None:
        self.value, self.parents, self.slopes = value, parents, slopes
        self.grad, self.born = 0.0, next(_births)

    def __add__(self, other: "Scalar | float") -> "Scalar":
        if isinstance(other, Scalar):
            return Scalar(self.value + other.value, (self, other), (1.0, 1.0))
        return Scalar(self.value + other, (self,), (1.0,))

    __radd__ = __add__  # sum() begins with 0 + the first

    def __mul__(self, other: "Scalar | float") -> "Scalar":
        if isinstance(other, Scalar):
            value = self.value * other.value
            return Scalar(value, (self, other), (other.value, self.value))
        return Scalar(self.value * other, (self,), (other,))

    def __pow__(self, exponent: float) -> "Scalar":
        slope = exponent * self.value ** (exponent - 1)
        return Scalar(self.value**exponent, (self,), (slope,))

    def exp(self) -> "Scalar":
        """Return e to the power of this number."""
        value = math.exp(self.value)
        return Scalar(value, (self,), (value,))

    def log(self) -> "Scalar":
        """Return the natural logarithm."""
        return Scalar(math.log(self.value), (self,), (self.value**-1,))

    def relu(self) -> "Scalar":
        """Return the number itself if it is above zero, and zero if not."""
        positive = self.value > 0
        return Scalar(self.value if positive else 0.0, (self,), (float(positive),))

    # --8<-- [end:scalar]

    # --8<-- [start:backward]
    def backward(self) -> None:
        """Add to the ``grad`` of every number that this one was made from."""
        found: set[Scalar] = {self}
        unread: list[Scalar] = [self]
        while unread:
            for parent in unread.pop().parents:
                if parent.parents and parent not in found:
                    found.add(parent)
                    unread.append(parent)
        self.grad = 1.0
        # From the youngest to the oldest: when a number has its turn, all that it went
        # into have had theirs, and its own gradient is complete.
        for number in sorted(found, key=attrgetter("born"), reverse=True):
            grad = number.grad
            for parent, slope in zip(number.parents, number.slopes, strict=True):
                parent.grad += slope * grad

    # --8<-- [end:backward]


# --8<-- [start:dot]
Vector = list[Scalar]
_value = attrgetter("value")


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Multiply two vectors: one number that has all their entries for parents."""
    x, y = tuple(map(_value, a)), tuple(map(_value, b))
    value = sum(starmap(mul, zip(x, y, strict=True)))
    return Scalar(value, (*a, *b), y + x)


# --8<-- [end:dot]
