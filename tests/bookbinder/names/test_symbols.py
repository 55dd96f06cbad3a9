"""Every symbol of a formula has a meaning: from Notation, or from its page."""

from pathlib import Path

import pytest

from bookbinder.names.symbols import symbol_problems, symbols_of
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]


def problems(prose: str) -> list[str]:
    page = read_page(f"# A page\n\n{prose}\n", "docs/page.md")
    return [str(problem) for problem in symbol_problems(page, ROOT)]


@pytest.mark.parametrize(
    ("tex", "symbols"),
    [
        (r"\frac{Q K^\top}{\sqrt{d_k}}", {"Q", "K", r"\top", r"\sqrt", "d_k"}),
        (r"XW^Q_h", {"X", "W^Q", "h"}),
        (r"H_\text{kv} \, d_\text{ff}", {'H_"kv', 'd_"ff'}),
        (r"\sum_{j=0}^{S-1} m_{tj}", {r"\sum", "j", "S", "m_tj"}),
        (r"\operatorname{softmax}\!\left(E\right)", {"softmax", "E"}),
        (r"\begin{cases} 1 & \text{if } s \le t \\[0.4em] 0 \end{cases}",
         {"s", r"\le", "t"}),
        (r"\int_0^\infty p_v \, dt", {r"\int", r"\infty", "p_v", "t"}),
        (r"\beta_1^t", {r"\beta_1", "t"}),
    ],
)  # fmt: skip
def test_the_symbols_of_a_formula(tex: str, symbols: set[str]) -> None:
    assert symbols_of(tex) == symbols


@pytest.mark.parametrize(
    "prose",
    [
        r"With $A = \operatorname{softmax}(QK^\top / \sqrt{d_k})$ and $W^Q_h$.",
        r"For a speed $\omega$ the angle is $t\,\omega$.",
        r"An arrow $(u, w)$ is $u + w$ long.",
        r"Head $h$ reads number $g(h)$, and $g(0) = 0$.",
        "The rest is\n\n$$\nr = x + 1, \\qquad y = r^2,\n$$\n\nfor a $x$.",
        r"$\sum_u p_u = 1$ for the $p_v$, whatever $v$ is: $p_v \ge 0$, $v \ge 0$.",
        r"Each part of it, $\operatorname{part}(X)$.",
        r"The loss $L_\text{honest}$ is $L_\text{honest} + 0$, and honest.",
        r"It costs $\text{tokens} \times D$ for all tokens.",
        r"`$no_formula$` is none",
        "It costs 5 \\$.",
    ],
)
def test_a_symbol_with_a_meaning_is_accepted(prose: str) -> None:
    assert problems(prose) == []


@pytest.mark.parametrize(
    ("prose", "symbol"),
    [
        (r"With $A = \operatorname{softmax}(RK^\top)$.", "R"),
        (r"The angle is $t\,\omega$.", r"\omega"),
        (r"There is $J$.", "J"),
        (r"$d_\text{fff}$ wide, and fff.", "d_fff"),
        (r"$d_\text{ff} + y_t$", "y_t"),
        (r"$AW^A$", "W^A"),
        (r"$\operatorname{softmix}(E)$", "softmix"),
        (r"$E \oplus A$", r"\oplus"),
        ("$d_q$ wide", "d_q"),  # d has no entries
        ("$d_j$ wide", "d_j"),
        ("$a_A$ and $a_{ts}$", "a_A"),  # a capital counts nothing
    ],
)
def test_a_symbol_without_one_is_refused(prose: str, symbol: str) -> None:
    found = problems(prose)
    assert found
    assert any(
        problem.endswith(
            f": {symbol} is not in Notation, and the page does not define it"
        )
        for problem in found
    )
    assert found[0].startswith("docs/page.md:3: $")


def test_words_of_a_formula_are_words_of_the_page() -> None:
    (problem,) = problems(r"It costs $\text{tokns} \times D$ for all tokens.")
    assert problem.endswith("the page never says 'tokns' outside formulas")


def test_a_group_belongs_to_what_takes_it() -> None:
    (problem,) = problems(r"$\cdot{d_k}$")
    assert problem.endswith(r"\cdot takes nothing in braces")


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"H \times d_k = D", r"\times is 'by' in a shape, and no product"),
        (r"B \times H \cdot T", r"\times is 'by' in a shape, and no product"),
        (r"T \cdot S \odot d_k", r"\odot takes rows and matrices, and S is a number"),
        (r"A \odot 2", r"\odot takes rows and matrices, and 2 is a number"),
    ],
)
def test_each_product_has_its_sign(tex: str, reason: str) -> None:
    (problem,) = problems(f"It is ${tex}$.")
    assert problem == f"docs/page.md:3: ${tex}$: {reason}"


def test_products_with_their_signs() -> None:
    assert problems(r"$A \odot E$ of $T \times S$ numbers, $T \cdot S$ in all.") == []
