"""A formula is computed as its letters say, for all indices, and mistakes are seen."""

import numpy as np
import pytest

from bookbinder.formulas.computing import Formula, UnboundError
from bookbinder.formulas.statements import read_statements, read_term
from bookbinder.formulas.terms import Statement
from bookbinder.formulas.values import UnfitError

T, S, D_K, D_V = 3, 5, 4, 2
rng = np.random.default_rng(0)
Q, K, V = (
    rng.normal(size=(T, D_K)),
    rng.normal(size=(S, D_K)),
    rng.normal(size=(S, D_V)),
)
E = np.array([[sum(q * k) / 2 for k in K] for q in Q])
A = np.array([[np.exp(e) / sum(np.exp(row)) for e in row] for row in E])
VALUES = {"Q": Q, "K": K, "V": V, "E": E, "A": A, "d_k": D_K, "T": T, "S": S}


def holds(tex: str, **more: object) -> str | None:
    values = VALUES | more
    known = {read_term(name): np.array(each, float) for name, each in values.items()}
    (statement,) = read_statements(tex)
    assert isinstance(statement, Statement)
    return Formula(statement, known).holds()


@pytest.mark.parametrize(
    "tex",
    [
        r"e_{ts} = \frac{q_t \cdot k_s}{\sqrt{d_k}}",
        r"E = Q K^\top / \sqrt{d_k}",
        r"a_{ts} = \frac{\exp e_{ts}}{\sum_j \exp e_{tj}}",
        r"A = \operatorname{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)",
        r"\sum_{s=0}^{S-1} a_{ts} = 1",
        r"\sum_{s \le t} a_{ts} < \sum_{s \le t + 1} a_{ts}",
        r"\sum_s a_{ts} v_{s,1} \ne 0",
        r"\max_s a_{ts} \le 1",
        r"\lVert q_t \rVert^2 = q_t \cdot q_t",
        r"\lfloor d_k / 3 \rfloor = 1",
        r"(A V)^\top = V^\top A^\top",
        r"\begin{bmatrix} A&A \end{bmatrix} \begin{bmatrix} V\\V \end{bmatrix} = 2 A V",
        r"\cos t \cos t + \sin t \sin t = a_{ts} / a_{ts}",
    ],
)  # fmt: skip
def test_what_is_right(tex: str):
    assert holds(tex) is None


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"e_{ts} = \frac{q_t \cdot k_s}{d_k}", "is not so at t = 0, s = 0"),
        (r"e_{ts} = \frac{q_t \cdot v_s}{\sqrt{d_k}}", "(4) and (2) do not multiply"),
        (r"E = Q^\top K / \sqrt{d_k}", "(4, 3) and (5, 4) do not multiply"),
        (r"A = \operatorname{softmax}(E^\top)", "one side is (3, 5), the other (5, 3)"),
        (r"a_{ts} = \frac{\exp e_{ts}}{\sum_j \ln e_{tj}}", "is not so"),
        (r"\sum_s a_{ts} > 1", "1 > 1 is not so at t = 0"),
        (r"q_t + v_s = 0", "(2) and (4) are added"),
        (r"q_t k_s = 0", "two rows stand side by side"),
        (r"A V = Q \odot K", "(3, 4) and (5, 4) do not multiply"),
    ],
)
def test_what_is_wrong(tex: str, reason: str):
    try:
        said = holds(tex)
    except UnfitError as error:
        said = str(error)
    assert said is not None
    assert reason in said


def test_a_letter_without_a_value():
    with pytest.raises(UnboundError, match=r"^X has no value$"):
        holds("X = Q")
    with pytest.raises(UnboundError, match=r"^nothing says how far i counts$"):
        holds(r"\sum_i 2 = 2")


def test_a_term_that_has_its_value_as_a_whole():
    a, term = A[0], r"\frac{\partial a_i}{\partial e_s}"
    known = {"a": a, r"\delta": np.eye(S), term: np.diag(a) - np.outer(a, a)}
    right = term + r" = a_i (\delta_{is} - a_s)"
    assert holds(right, **known) is None
    wrong = term + r" = a_s (\delta_{is} - a_s)"
    assert holds(wrong, **known) is not None
    assert holds(r"W_h Q^\top = (h + 2) Q Q^\top", W_h=[2 * Q, 3 * Q]) is None


def test_indices_that_are_computed():
    table = [np.sin(0.5 * t) for t in range(6)]
    assert holds(r"p_{2i} = \sin(i)", p=table) is None
    assert holds("x_{l} = x_{l-1} + 1", x=[3, 4, 5]) is None
    assert holds("g(h) = h", g=[0, 1, 2]) is None
    assert holds(r"K_{0 \ldots t} = K", t=S - 1) is None
    assert holds("W[n] = K", W=K[::-1], n=[4, 3, 2, 1, 0]) is None


def test_what_becomes_of_a_value():
    assert holds(r"m \leftarrow m + 1", **{"m": 2, "m'": 3}) is None
    assert holds(r"m \leftarrow m + 1", **{"m": 2, "m'": 4}) == "4 ← 3 is not so"
