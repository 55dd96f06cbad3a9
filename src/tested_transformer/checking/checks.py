"""The checks: questions that any attention has to answer rightly, and that few ask."""

from collections.abc import Callable

from tested_transformer.checking.comparisons import (
    cached,
    dtypes,
    finite_differences,
    modes,
    same_gradient,
    same_output,
)
from tested_transformer.checking.properties import (
    empty_rows,
    honest,
    huge_scores,
    leak,
    padding,
    permutation,
    prefix,
    rows,
)
from tested_transformer.checking.subject import Subject

__all__ = ["CHECKS"]

CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "leak": leak,
    "honest loss": honest,
    "prefix": prefix,
    "padding": padding,
    "empty rows": empty_rows,
    "permutation": permutation,
    "output": same_output,
    "gradient": same_gradient,
    "row sums": rows,
    "huge scores": huge_scores,
    "finite differences": finite_differences,
    "cache": cached,
    "modes": modes,
    "dtypes": dtypes,
}
