"""What a formula states is read as a reader of mathematics reads it."""

import pytest

from bookbinder.formulas.cutting import UnreadableError, cut
from bookbinder.formulas.statements import read_statements, read_term
from bookbinder.formulas.terms import Named, Power, Product, Raw, Symbol


@pytest.mark.parametrize(
    ("tex", "count"),
    [
        (r"Q = X W^Q, \quad K = C W^K", 2),
        (r"\begin{aligned} m &\leftarrow m + 1 \\[0.4em] v &= 2 \end{aligned} .", 2),
        (r"a_{ts} = \begin{cases} 1 & \text{if } s \le t \\ 0 \end{cases}, b = 2", 2),
        (r"\text{post-norm: } Y = X", 1),
        (r"Y = X && \text{output.}", 1),
        (r"f(x, y) = 2", 1),
    ],
)
def test_statements_end_where_a_comma_a_space_or_a_row_ends(tex: str, count: int):
    found = read_statements(tex)
    assert len(found) == count
    assert not any(isinstance(each, Raw) for each in found)


def test_what_stands_side_by_side_is_one_divisor():
    x, t = Symbol("x"), Symbol("t")
    assert read_term("1 / x t") == read_term("1 / (x t)")
    assert read_term(r"x \cdot t / x") == Product(x, (("·", t), ("/", x)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\cos t\omega \cos s", r"\cos(t\omega) \cos(s)"),
        (r"\exp e_{ts} + 1", r"\exp(e_{ts}) + 1"),
        (r"\sqrt 2 \ln 2", r"\sqrt{2} \ln(2)"),
        (r"\tfrac12 x", r"\frac{1}{2} x"),
        (r"\tanh^2 x", r"(\tanh x)^2"),
        (r"\sum_s a_s v_s + 1", r"(\sum_s a_s v_s) + 1"),
        (r"W_h^{O\top}", r"{W^O_h}^\top"),
        (r"\operatorname{N}\!\left(X\right)", r"\operatorname{N}(X)"),
    ],
)
def test_the_same_in_other_signs(one: str, other: str):
    assert read_term(one) == read_term(other)


def test_names_and_indices():
    assert read_term("W^Q_h") == Symbol("W^Q", (Symbol("h"),))
    assert read_term(r"d_\text{ff}") == Symbol("d_ff")
    assert read_term("e_{ts}") == Symbol("e", (Symbol("t"), Symbol("s")))
    assert read_term(r"\bar e_s") == Symbol(r"\bar e", (Symbol("s"),))
    assert read_term(r"K^\top") == Power(Symbol("K"), None)
    assert read_term("g(h)") == Named(Symbol("g"), (Symbol("h"),))
    assert isinstance(read_term("g (h)"), Product)


@pytest.mark.parametrize("tex", ["a +", r"\frac{a}", "a = b", r"a \in b", "(a", "#"])
def test_what_cannot_be_read_says_so(tex: str):
    with pytest.raises(UnreadableError):
        read_term(tex)


def test_nothing_is_left_out_in_silence():
    with pytest.raises(UnreadableError):
        cut("a \\")
