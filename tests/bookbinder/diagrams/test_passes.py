"""What a diagram draws is held against a real pass, mistake by mistake."""

import pytest

from bookbinder.diagrams.passes import diagram_problems
from bookbinder.page import read_page

PAGE = """# Attention

Softmax makes weights of scores, and the output of a context. To project is to multiply.

```mermaid
flowchart TB
    accTitle: Attention
    accDescr: Queries (B, T, D) and keys give scores.
    %% x, c = rand(B, T, D), rand(B, S, C)
    %% attend = MultiHeadAttention(d_model=D, num_heads=H, d_context=C)
    %% steps = traced(attend, x, context=c, return_weights=True)
    %% Q, kv = steps.q, (steps.k, steps.v)
    %% E, A, O = steps.scores, steps.weights, steps.output
    x["x: (B, T, D)"] -- "project" --> Q["q: (B, H, T, d_k)"]
    c["context: (B, S, C)"] --> kv["k, v: (B, H, S, d_k)"]
    Q --> E["scores: (B, H, T, S)"]
    kv --> E
    E -- "softmax" --> A["weights: (B, H, T, S)"]
    A --> O["output: (B, T, D)"]
    kv --> O
```
"""


def problems(*changes: tuple[str, str]) -> list[str]:
    text = PAGE
    for right, wrong in changes:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return [str(problem) for problem in diagram_problems(read_page(text, "page.md"))]


def test_a_right_diagram_is_accepted() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("right", "wrong", "report"),
    [
        (
            'x["x: (B, T, D)"]',
            'x["x: (B, S, D)"]',
            "page.md:14: node x draws (B, S, D), but the pass gives (B, T, D): "
            "(2, 5, 24)",
        ),
        (
            '"k, v: (B, H, S, d_k)"',
            '"k, v: (B, S, H, d_k)"',
            "page.md:15: node kv draws (B, S, H, d_k), but the pass gives "
            "(B, H, S, d_k): (2, 6, 7, 4)",
        ),
        (
            '"output: (B, T, D)"',
            '"output: (B, T, 2D)"',
            "page.md:19: node O draws (B, T, 2D), but the pass gives (B, T, D): "
            "(2, 5, 24)",
        ),
        (
            '"output: (B, T, D)"',
            '"output: (B, T, W)"',
            "page.md:19: W is no size of the legend, and the pass sets none",
        ),
        (
            '"output: (B, T, D)"',
            '"weights: (B, T, D)"',
            "page.md:19: node O says 'weights', but the tensor is called "
            "O, o_proj, output",
        ),
        (
            '"k, v: (',
            '"k, q: (',
            "page.md:15: node kv says 'q', but the tensor is called heads, k, kv, v",
        ),
        (
            '"output: (B, T, D)"',
            '"output: (2, T, D)"',
            "page.md:19: (2, T, D): a size other than 1 is a letter",
        ),
        (
            "(B, T, D) and keys",
            "(B, S, D) and keys",
            "page.md:8: accDescr says (B, S, D), which the diagram does not draw",
        ),
        (
            "A --> O[",
            "E --> O[",
            "page.md:19: an arrow leads from E to O, but in the pass O is made "
            "of A, kv",
        ),
        (
            "    kv --> O\n",
            "",
            None,
        ),
        (
            "    kv --> E\n",
            "",
            "page.md:16: E is made of kv, but no arrow leads there",
        ),
        (
            'E -- "softmax" --> A',
            'E -- "project" --> A',
            "page.md:18: the arrow from E to A says 'project', but the pass does "
            "_softmax there",
        ),
        (
            '-- "softmax" -->',
            '-- "softmix" -->',
            "page.md:18: the diagram says 'softmix', which the page never does",
        ),
        (
            '-- "project" -->',
            '-- "weight: (D, D)" -->',
            "page.md:14: the arrow from x to Q draws (D, D), but its pass makes "
            "no weight",
        ),
        (
            '-- "project" -->',
            '-- "project, z" -->',
            "page.md:14: the arrow from x to Q says z, which its pass does not make",
        ),
        (
            "%% Q, kv = steps.q, (",
            "%% kv = (",
            "page.md:14: node Q draws (B, H, T, d_k), but its pass makes no Q",
        ),
        (
            "num_heads=H",
            "num_heads=S",
            "page.md:10: the pass of this diagram: ValueError: d_model=24 must be "
            "divisible by num_heads=7",
        ),
        (
            "rand(B, T, D),",
            "rand(B, T, D)),",
            "page.md:9: the pass of this diagram: SyntaxError: unmatched ')'",
        ),
        (
            "rand(B, T, D),",
            "randn(B, T, D),",
            "page.md:9: the pass of this diagram: NameError: name 'randn' is not "
            "defined: import it above, in a line %% from ... import ...",
        ),
        (
            "A --> O[",
            "A --- O[",
            "page.md:19: this line of a diagram is not understood: "
            'A --- O["output: (B, T, D)"]',
        ),
        (
            "E, A, O = steps.scores, steps.weights, steps.output",
            "E, A, O = steps.scores, steps.weights, steps.weights",
            "page.md:19: node O says 'output', but the tensor is called A, O, weights",
        ),
    ],
)
def test_a_mistake_is_named(right: str, wrong: str, report: str | None) -> None:
    found = problems((right, wrong))
    if report is None:
        assert found == []  # Another way leads there: A is made of kv.
    else:
        assert report in found


def test_one_tensor_cannot_be_two_steps() -> None:
    (problem,) = problems(
        ("E, A, O = ", "E, A, O, W = "),
        ("steps.output\n", "steps.output, steps.weights\n"),
        ("    kv --> O\n", '    kv --> O\n    A --> W["weights: (B, H, T, S)"]\n'),
    )
    assert problem == "page.md:21: nodes A and W are one tensor of the pass"


def test_two_letters_for_one_size_are_refused() -> None:
    (problem,) = problems(("%% x, c = ", "%% S = T\n    %% x, c = "))
    assert problem == "page.md:16: S and T are both 5: the sizes must differ"


def test_a_shape_needs_a_pass() -> None:
    bare = "\n".join(line for line in PAGE.split("\n") if "%%" not in line)
    (problem,) = diagram_problems(read_page(bare, "page.md"))
    assert str(problem) == (
        "page.md:9: 'x: (B, T, D)' has a shape, but no pass stands behind this "
        "diagram: write it in lines that begin with %%"
    )


def test_a_diagram_without_shapes_needs_none() -> None:
    chart = 'flowchart TB\n    A["where"] -- no --> B["where"]\n'
    text = f"Where?\n\n```mermaid\n{chart}```\n"
    assert diagram_problems(read_page(text, "page.md")) == []


def test_a_function_of_the_page_may_be_called() -> None:
    text = """Twice.

```python
import torch


def twice(x):
    double = 2 * x
    return torch.relu(double)
```

```mermaid
flowchart TB
    %% X = rand(T, D)
    %% steps = traced(twice, X)
    %% Y = steps.double
    X["X: (T, D)"] -- "twice" --> Y["double: (T, D)"]
```
"""
    assert diagram_problems(read_page(text, "page.md")) == []
    (problem,) = diagram_problems(
        read_page(text.replace("double: (T", "double: (S"), "p")
    )
    assert problem.line == 17


def test_a_loop_is_the_next_round() -> None:
    text = """Twice, again.

```mermaid
flowchart TB
    %% X = rand(T, D)
    %% Y = 2 * X
    X["X: (T, D)"] -- "twice" --> Y["Y: (T, D)"]
    Y -- "again" --> X
```
"""
    assert diagram_problems(read_page(text, "page.md")) == []


def test_the_random_state_is_left_alone() -> None:
    import torch

    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert problems() == []
    assert torch.equal(torch.get_rng_state(), before)


IN_TURN = """Softmax, then divide.

```python
import torch


def both(x):
    double = x.softmax(-1) / 2
    return double
```

```mermaid
flowchart TB
    %% X = rand(T, D)
    %% steps = traced(both, X)
    %% Y = steps.double
    X["X: (T, D)"] -- "softmax, divide" --> Y["double: (T, D)"]
```
"""


def test_the_words_on_an_arrow_come_in_their_turn() -> None:
    assert diagram_problems(read_page(IN_TURN, "page.md")) == []
    turned = IN_TURN.replace("softmax, divide", "divide, softmax")
    (problem,) = diagram_problems(read_page(turned, "page.md"))
    assert str(problem) == (
        "page.md:17: the arrow from X to Y says 'divide' before 'softmax', but the "
        "pass does them the other way around"
    )


@pytest.mark.parametrize(
    ("words", "axis", "right"),
    [
        ("softmax of each row", -1, True),
        ("softmax of each column", -2, True),
        ("softmax of each row", -2, False),
        ("softmax over keys", -2, False),
        ("softmax of each key", -1, False),
        ("softmax", -2, True),
    ],
)
def test_a_softmax_is_over_what_its_arrow_says(
    words: str, axis: int, right: bool
) -> None:
    text = IN_TURN.replace("softmax, divide", words).replace("(-1)", f"({axis})")
    text = text.replace(
        "Softmax", "Softmax over keys, of each row, each key and column"
    )
    found = [each.reason for each in diagram_problems(read_page(text, "page.md"))]
    done = "_softmax" if axis == -1 else "_softmax of columns"
    wrong = f"the arrow from X to Y says '{words}', but the pass does {done}, div there"
    assert found == ([] if right else [wrong])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (("yes", "no"), None),
        (("by a table", "no"), None),
        (("yes", "yes"), "two arrows from A say 'yes'"),
        (("by a table", "yes"), "an arrow from A says 'yes', and none says 'no'"),
    ],
)
def test_a_question_has_a_yes_and_a_no(
    answers: tuple[str, str], reason: str | None
) -> None:
    arrows = (f'    A["ask"] -- {word} --> B["by a table"]' for word in answers)
    text = "\n".join(
        ["Ask by a table.", "", "```mermaid", "flowchart TB", *arrows, "```", ""]
    )
    found = diagram_problems(read_page(text, "page.md"))
    assert {problem.reason for problem in found} == ({reason} if reason else set())


TOLD = """Parts: masks, heads, proof.

```mermaid
flowchart TB
    accTitle: Parts
    accDescr: Part heads builds on part masks. Proof builds on heads, and is the last.
    A["`**Part masks**<br/>Chapters`"] --> B["Part heads"]
    B --> C["Proof"]
```
"""


def test_each_bare_arrow_is_told_where_no_pass_is_run() -> None:
    text = TOLD.replace("Parts:", "Parts, chapters:")
    told = text.replace("on heads", "on part heads")
    assert diagram_problems(read_page(told, "page.md")) == []
    (problem,) = diagram_problems(read_page(text, "page.md"))
    assert str(problem) == (
        "page.md:8: accDescr has no sentence with both ends of this arrow, "
        "'Part heads' and 'Proof'"
    )
    turned = told.replace("    B --> C", "    A --> C")
    (problem,) = diagram_problems(read_page(turned, "page.md"))
    assert "'Part masks' and 'Proof'" in str(problem)
    assert diagram_problems(read_page(turned.replace("-->", "-- heads -->"), "p")) == []
