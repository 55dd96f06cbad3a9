"""Each equation of a page is computed from what its runs give, or given as a whole."""

from collections.abc import Callable

import pytest

from bookbinder.reading.pages import read_page

RUN = """\
```python
q = [1.0, 2.0]
k = [[3.0, 4.0], [0.5, 0.0], [1.0, 1.0]]
scores = [q[0] * key[0] + q[1] * key[1] for key in k]
```

"""


WHERE = "<!-- where: q = q; K = k; e = scores -->\n"


@pytest.mark.parametrize(
    "text",
    [
        WHERE + r"A score is $e_s = q \cdot k_s$.",
        "## First\n\n" + WHERE + "\n## Second\n\n" + r"Here $e_s = q \cdot k_s$.",
        WHERE + WHERE.replace("scores", "[0, 0, 0]") + r"Here $e_s = q \cdot k_s$.",
        WHERE + "$$\n" + r"e_s = q \cdot k_s, \qquad \sum_s e_s = 14.5 ." + "\n$$",
        '<!-- given: "$e_s = a_s b_s$": by hand -->\nIt is $e_s = a_s b_s$.',
        "Letters alone: $q = 2$, $S = T$; numbers alone: $2 + 2 = 4$.",
        r"<!-- where: \operatorname{N}(q) = [2.0, 4.0]; q = q -->"
        "\n"
        r"A norm, $\operatorname{N}(q) = 2 q$.",
    ],
)
def test_what_is_computed_is_accepted(problems: Callable[[str], list[str]], text: str):
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WHERE + "A score is $e_s = q + k_s$.", "one side is a number, the other (2)"),
        (WHERE + r"Here $e_s = 2 q \cdot k_s$.", "11 = 22 is not so at s = 0"),
        (WHERE + r"Here $e_s = p \cdot k_s$.", "p has no value: give its letters"),
        (r"Here $e_s = q \cdot k_s$.", "its letters have no values: give its letters"),
        (
            '<!-- given: "$e_s = a_s$": no -->\nHere $e_s = a_t b$.',
            "its letters have no",
        ),
        (WHERE + r"Here $e_s \oplus q = 2 q$.", r"\oplus has no value: give"),
    ],
)
def test_what_is_not_is_refused(
    problems: Callable[[str], list[str]], text: str, reason: str
):
    (problem,) = problems(text)
    line = 7 + text[: text.index("$")].count("\n") if "given" not in text else 8
    assert problem.startswith(f"{line}: $")
    assert reason in problem


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("q = missing", "7: where: NameError: name 'missing' is not defined: after ="),
        ("q + = 2", "7: where: q + is no letter and nothing with a value"),
        ("q = q; 2 q = [2.0, 5.0]", "7: where: 4 = 5 is not so"),
    ],
)
def test_what_a_where_may_not_say(
    problems: Callable[[str], list[str]], where: str, reason: str
):
    (problem,) = problems(f"<!-- where: {where} -->\n")
    assert problem.startswith(reason)


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("<!-- where: q -->", "where: wanted a letter and its value, Q = q: q"),
        ("<!-- where: q = 2 + -->", "where: 2 + is no expression: invalid syntax"),
    ],
)
def test_a_where_that_cannot_be_read(comment: str, reason: str):
    (problem,) = read_page(f"{comment}\n", "page.md").unbound
    assert problem.reason == reason
