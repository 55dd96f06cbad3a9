"""Numbers in formulas are computed as a reader would, and nothing else is."""

import math

import pytest

from bookbinder.numbers.equations import evaluate, sides, written_step


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (r"2 \ln 8 / 7", 2 * math.log(8) / 7),
        (r"\frac{2 \ln 8}{7}", 2 * math.log(8) / 7),
        (r"\tfrac12", 0.5),
        (r"\frac{10}3 + 20", 10 / 3 + 20),
        (r"\sqrt 2", math.sqrt(2)),
        (r"\sqrt{2 + 2}", 2),
        (r"-\sqrt 2 \ln 2", -math.sqrt(2) * math.log(2)),
        (r"100^{-2/4}", 0.1),
        (r"2^4", 16),
        (r"4 \cdot 16^2", 1024),
        (r"1 / (1 + e^{0.7071})", 1 / (1 + math.exp(0.7071))),
        (r"\log_2 5", math.log2(5)),
        (r"\cos 60°", 0.5),
        (r"14\pi", 14 * math.pi),
        (r"(16 + 16 + 0) / 16", 2),
        (r"1{,}024", 1024),
        (r"\exp(-\infty)", 0),
        (r"\frac{145}{2} : \frac52", 29),
        (r"3! - 1", 5),
    ],
)
def test_what_is_made_of_numbers_has_a_value(formula: str, value: float) -> None:
    got = evaluate(formula)
    assert got is not None
    assert math.isclose(got, value, abs_tol=1e-12)


@pytest.mark.parametrize(
    "formula",
    [
        "d_k",
        "2D",
        r"x^2",
        r"\frac{1}{T}",
        r"\sqrt{d_k}",
        "1 / 0",
        r"\ln 0",
        "(1, 2",
        "",
    ],
)
def test_what_has_symbols_or_no_value_has_none(formula: str) -> None:
    assert evaluate(formula) is None


def test_an_equation_that_holds_and_one_that_does_not() -> None:
    _, right = sides(r"$2 \ln 8 / 7 = 0.594$")
    _, wrong = sides(r"$2 \ln 8 / 7 = 0.595$")
    assert (right.holds, wrong.holds) == (True, False)
    assert (right.value, right.step) == (0.594, 0.001)


def test_a_whole_number_is_exact_unless_the_sign_is_wavy() -> None:
    _, equal = sides("$67 / 16 = 4$")
    _, about = sides(r"$67 / 16 \approx 4$")
    assert (equal.holds, about.holds) == (False, True)
    _, wrong = sides(r"$67 / 16 \approx 5$")
    assert not wrong.holds


def test_only_numbers_on_both_sides_are_compared() -> None:
    (only,) = sides("$d_k = 4$")
    assert (only.value, only.equals) == (4, None)
    first, second = sides(r"$\omega_1 = 100^{-2/4} = 0.1$")
    assert (first.equals, second.equals) == (None, first)


def test_the_entries_of_a_list_are_apart() -> None:
    assert [side.value for side in sides("$(1, 0, -2.5)$")] == [1, 0, -2.5]


def test_a_side_says_where_it_stands() -> None:
    formula = r"$\sqrt 4 = 2$"
    assert [formula[side.start : side.end] for side in sides(formula)] == [
        r"\sqrt 4",
        "2",
    ]


@pytest.mark.parametrize(
    ("digits", "step"), [("7", 1), ("1.25", 0.01), ("1e-4", 1e-4), ("2.5e3", 100)]
)
def test_the_last_digit_has_a_size(digits: str, step: float) -> None:
    assert math.isclose(written_step(digits), step)
