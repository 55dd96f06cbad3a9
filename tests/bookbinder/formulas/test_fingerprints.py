"""What is written in two ways and computes the same has one print."""

import pytest

from bookbinder.formulas.fingerprints import print_of, prints_in
from bookbinder.formulas.statements import read_term


@pytest.mark.parametrize(
    ("tex", "code"),
    [
        (r"2 \, L \, H_\text{kv} \, d_k", "2 * num_layers * layer.num_kv_heads * d_k"),
        ("hT + t", "t + h * T"),
        (r"\lfloor c / T \rfloor", "c // T"),
        (r"c \bmod T", "c % T"),
        (r"\frac{a}{1 - a}", "a / (1 - a)"),
        (r"\sqrt{2 d}", "math.sqrt(2 * d)"),
        (r"\exp(-g / \tau)", "(-g / temperature).exp()"),
        ("a_s b^3", "b**3 * a[s]"),
        (r"-\log_2 p", "-log2(p)"),
    ],
)
def test_code_and_formula_may_say_the_same(tex: str, code: str) -> None:
    assert print_of(read_term(tex)) in {*prints_in(f"x = f({code}, y)")} - {None}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"2 \, L \, H \, d_k", "2 * L * H_kv * d_k"),
        ("hT + t", "h * T + h"),
        ("S - T", "T - S"),
        (r"c \bmod T", "c // T"),
        ("a (1 - a)", "a * (1 + a)"),
        ("3 D", "2 * D"),
    ],
)
def test_what_differs_has_another_print(one: str, other: str) -> None:
    assert print_of(read_term(one)) not in {None, *prints_in(other)}


@pytest.mark.parametrize(
    "tex", [r"A^\top G", "A G", r"\sum_s a_s", "f(x)", "x_{s + 1}"]
)
def test_what_is_more_than_numbers_has_none(tex: str) -> None:
    assert print_of(read_term(tex)) is None
    assert [*prints_in("f(x)[1](y)")] == [*prints_in("not Python")] == []
