"""What a formula computes without an equation is computed by the page as well."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bookbinder.formulas.holding import formula_problems
from bookbinder.reading.pages import read_page

RUN = """\
```python
import torch

A, G, V = torch.rand(3, 4), torch.rand(3, 2), torch.rand(4, 2, requires_grad=True)
(back,) = torch.autograd.grad(A @ V, V, G)
L, num_kv_heads, d_k = 2, 3, 5
numbers = 2 * L * num_kv_heads * d_k
```

"""
WHERE = r"""<!-- where: A = A; G = G; A^\top G = back -->
<!-- where: o = A @ V; g = G[0]; o_t \cdot g = (A @ V) @ G[0] -->
"""
MISSING = "nothing on this page computes it: give its letters the values of a run"


@pytest.mark.parametrize(
    "text",
    [
        WHERE + r"It is $A^\top G$.",
        r"It has $2 \, L \, H_\text{kv} \, d_k$ numbers.",
        WHERE + r"As $B = A^\top G$ says, $A^\top G$ it is.",
        '<!-- given: "$A G$": by hand -->\nIt is $A G$.',
        "<!-- where: a = 3; b = 5; n = 15 -->\nWith $n = a b$ there are $b a$.",
        '<!-- holds: "$a b$ | 60" = numbers -->\n\n| $a b$ | 60 |\n|---|---|',
        # Names, sizes, and what says next to nothing.
        r"$f(x)$, $f_t(x_0 \ldots x_n)$, $T \times S$, $(T, S)$, $2D$, $\sqrt{D}$.",
    ],
)
def test_what_the_page_computes_is_accepted(
    problems: Callable[[str], list[str]], text: str
) -> None:
    reasons = [each for each in problems(text) if "B = " not in each]
    assert reasons == []


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        (WHERE + "It is $A G$.", "$A G$"),
        (WHERE + r"It is $G^\top A$.", r"$G^\top A$"),
        (r"It has $2 \, L \, H \, d_k$ numbers.", r"$2 \, L \, H \, d_k$"),
        ("It is $f(x + y)$.", "$f(x + y)$"),
        (r"It is $\exp(-4 / x)$.", r"$\exp(-4 / x)$"),
    ],
)
def test_what_nothing_computes_is_refused(
    problems: Callable[[str], list[str]], text: str, formula: str
) -> None:
    (problem,) = problems(text)
    assert problem.partition(": ")[2].startswith(f"{formula}: {MISSING}")


def test_the_value_of_a_term_is_compared_at_its_indices(
    problems: Callable[[str], list[str]],
) -> None:
    assert problems(WHERE) == []
    (problem,) = problems(WHERE.replace("= (A @ V) @ G[0] ", "= (A @ V) @ G[1] "))
    assert "is not so at t = 0" in problem
    (problem,) = problems(WHERE.replace(r"A^\top G = back", r"A^\top G = 2 * back"))
    assert problem.startswith("10: where: ")
    assert "is not so" in problem


def test_where_nothing_runs_nothing_is_asked() -> None:
    assert formula_problems(read_page("It is $A G$.\n", "p.md"), {}, Path()) == []


def test_a_minus_belongs_to_what_stands_behind_it(
    problems: Callable[[str], list[str]],
) -> None:
    where = r"<!-- where: p = 1 / d_k; d_k = 5; -p \ln p = 0.321888 -->" + "\n"
    assert problems(where + r"It is $-p \ln p$, where $\ln p$ is.") == []
    (problem,) = problems(where + r"It is $p \ln p$.")
    assert problem.partition(": ")[2].startswith(rf"$p \ln p$: {MISSING}")
