"""A number that a comparison stands behind lies where the comparison says it does."""

from math import inf

import pytest

from bookbinder.numbers.bounds import bounds_of


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        ("740 < length < 760", (740, 760)),
        ("length >= 2**7", (128, inf)),
        ("0.12 > rest", (-inf, 0.12)),
        ("-1 / 4 <= low", (-0.25, inf)),
        ("1 < low < high < 4", (1, 4)),
    ],
)
def test_plain_numbers_at_the_edges_are_bounds(
    expression: str, bounds: tuple[float, float]
) -> None:
    assert bounds_of(expression) == bounds


@pytest.mark.parametrize(
    "expression", ["len(tokens)", "low < high", "count == 4", "low < 1 / 0", "low <"]
)
def test_all_else_has_none(expression: str) -> None:
    assert bounds_of(expression) is None


def test_what_lies_at_the_edge_lies_within() -> None:
    bounds = bounds_of("740 < length < 760")
    assert bounds is not None
    assert [each in bounds for each in (739, 740, 750, 760, 761)] == [0, 1, 1, 1, 0]
