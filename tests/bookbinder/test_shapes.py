"""What a diagram draws is compared with a real pass, slip by slip."""

import re

import torch

from bookbinder.page import read_page
from bookbinder.shapes import Label, diagram_problems, read_diagram

PAGE = """# Attention

```mermaid
flowchart TB
    accTitle: Attention
    accDescr: Queries (B, T, D) and keys give scores.
    %% x, c = rand(B, T, D), rand(B, S, C)
    %% attend = MultiHeadAttention(d_model=D, num_heads=H, d_context=C)
    %% steps = traced(attend, x, context=c, return_weights=True)
    %% weight, Q, kv = attend.q_proj.weight.tile(2, 1), steps.q, (steps.k, steps.v)
    %% E, A = steps.scores, steps.weights
    %% O = steps.output, steps.heads
    x["x: (B, T, D)"] -- "weight: (2D, D)" --> Q["q: (B, H, T, d_k)"]
    c["context: (B, S, C)"] --> kv["k, v: (B, H, S, d_k)"]
    Q -- any words --> E["scores: (B, H, T, S)"]
    kv --> E --> A["weights: (B, H, T, S)"]
    A --> O["output: (B, T, D), heads: (B, H, T, d_k)"] --> last["a word"]
```
"""


def problems(*changes: tuple[str, str], page: str = PAGE) -> list[str]:
    for right, wrong in changes:
        assert page.count(right) == 1, right
        page = page.replace(right, wrong)
    return [str(problem) for problem in diagram_problems(read_page(page, "page.md"))]


def test_a_right_diagram_is_accepted() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert problems() == []
    assert torch.equal(torch.get_rng_state(), before)


def test_any_other_letter_in_any_shape_is_noticed() -> None:
    unnoticed: list[str] = []
    for shape in re.finditer(r"[:s] (\([^)]*\))", PAGE):
        for letter in re.finditer(r"[A-Za-z]\w*", shape[1]):
            start, end = (shape.start(1) + at for at in letter.span())
            replacement = "S" if letter[0] != "S" else "T"
            slip = PAGE[:start] + replacement + PAGE[end:]
            line = PAGE.count("\n", 0, start) + 1
            if not any(p.startswith(f"page.md:{line}:") for p in problems(page=slip)):
                unnoticed.append(f"{line}: {shape[1]}, {letter[0]} to {replacement}")
    assert unnoticed == []


def test_a_slip_is_named() -> None:
    turned = "kv draws (B, S, H, d_k), but the pass gives (B, H, S, d_k): (2, 6, 7, 4)"
    missing = "the pass of this diagram: NameError: name 'randn' is not defined: import"
    for right, wrong, report in (
        ('"k, v: (B, H, S', '"k, v: (B, S, H', f"14: {turned}"),
        ("output: (B, T, D)", "output: (B, T, W)", "17: W is no size of the legend"),
        ("output: (B, T", "output: (2, T", "17: (2, T, D): a size other than 1 is a"),
        ("%% x, c", "%% S = T\n    %% x, c", "15: S and T are both 5: the sizes must"),
        ("(B, T, D) and", "(B, S, D) and", "6: (B, S, D) is read out, but the diagram"),
        ('["a word"]', '["(B, T)"]', "17: last draws (B, T), but the pass makes no"),
        ("rand(B, T, D),", "randn(B, T, D),", f"7: {missing}"),
    ):
        reports = problems((right, wrong))
        assert any(p.startswith(f"page.md:{report}") for p in reports), reports


def test_a_shape_needs_a_pass_and_a_diagram_without_shapes_none() -> None:
    bare = "\n".join(line for line in PAGE.split("\n") if "%%" not in line)
    assert problems(page=bare) == [
        "page.md:6: (B, T, D) is a shape, but this diagram has no program: "
        "write it in lines that begin with %%"
    ]
    chart = 'flowchart TB\n%% not Python\nA["one (first)"] -- no --- B["f(x)"]\n'
    assert problems(page=f"```mermaid\n{chart}```\n") == []


def test_a_function_of_the_page_may_be_called() -> None:
    text = """```python
import torch


def twice(x):
    double = 2 * x
    return torch.relu(double)
```

```mermaid
flowchart TB
    %% X = rand(T, D)
    %% Y = traced(twice, X).double
    X["X: (T, D)"] --> Y["double: (T, D)"]
```
"""
    assert problems(page=text) == []
    assert problems(("double: (T", "double: (S"), page=text) == [
        "page.md:14: Y draws (S, D), but the pass gives (T, D): (5, 24)"
    ]


CHART = """flowchart TB
    accTitle: A title
    accDescr: From (T, D) to there.
    %% X = rand(T, D)
    %% if True:
    %%     Y = X.mT
    subgraph S["all: (T, S)"]
    X["X: (T, D)"] -- "by W: (D, D)" --> Y(["q: (T, 1), v:
    (S, D)"]) --> Z("end (of it)")
    end
    X -->|"(T, D)"| P(("f(x)"))"""


def test_every_shape_belongs_to_a_variable_and_lines_stay() -> None:
    diagram = read_diagram(f"{CHART}\n%% [A link](page.md)")
    assert sorted(diagram.labels, key=lambda label: label.line) == [
        Label("S", ["(T, S)"], 6),
        Label("X", ["(T, D)"], 7),
        Label("Y", ["(T, 1)", "(S, D)"], 7),
        Label("W", ["(D, D)"], 7),
        Label("X", ["(T, D)"], 10),
    ]
    assert diagram.spoken == [Label("", ["(T, D)"], 2)]
    assert diagram.program == {3: "X = rand(T, D)", 4: "if True:", 5: "    Y = X.mT"}


def test_a_shape_is_sizes_in_parentheses_and_words_are_none() -> None:
    sizes = "(B, T); (D); (T, 1); (3D, D); (4 D); (B * H, T, d_k); (B, vocab)"
    for text in sizes.split("; "):
        assert read_diagram(f'A["x: {text}"]').labels == [Label("A", [text], 0)]
    words = "(); (a b); (x + y); B, T; (first); (keys, values); (2)"
    for text in words.split("; "):
        assert read_diagram(f'A["x: {text}"]').labels == []
