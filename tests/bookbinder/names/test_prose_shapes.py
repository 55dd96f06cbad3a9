"""A shape in prose is that of something."""

import re
from pathlib import Path

import pytest

from bookbinder.names.prose_shapes import prose_shape_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]


def problems(prose: str) -> list[str]:
    page = read_page(f"# A page\n\n{prose}\n", "docs/page.md")
    return [str(problem) for problem in prose_shape_problems(page, ROOT)]


@pytest.mark.parametrize(
    "shape",
    [
        "$(B, H, T, S)$",
        "`(B, H, T, d_k)`",
        "$(T, S)$",  # of one head
        "$(B, H, T, T)$",  # of self-attention
        r"$(S, d_\text{context})$",  # of Notation
        "$(T, B, D)$ without batch_first",
        "$(T, d)$",  # of the page
        "(B, H, T, d_k)",  # in words
        "(S, C)",  # as code writes d_context
        "(T, then B)",  # no shape
        "(B, X)",  # X is no size
        "$(a, b)$",
        "`x.view(B, H, T, d_k)`",
    ],
)
def test_a_shape_of_something_is_accepted(shape: str) -> None:
    assert problems(f"It is {shape}.") == []


@pytest.mark.parametrize(
    "shape",
    [
        *("(B, H, S, T)", "(B, T, H, S)", "(D, T)", "(B, H, T, V)", "(T, S, H)"),
        *("(T, B, D)", "(B, D)", "(B, H, d_k)", "(d, T)", "(12, T)"),
    ],
)
def test_a_shape_of_nothing_is_refused(shape: str) -> None:
    wanted = [f"docs/page.md:3: {shape}: nothing has this shape"]
    assert problems(f"It is `{shape}`.") == wanted
    assert problems(f"It is ${shape}$.") == wanted
    if not re.search(r"\b(?:d|12)\b", shape):
        assert problems(f"It is of shape {shape}.") == wanted


def test_a_block_of_the_page_may_show_it() -> None:
    code = "```python\nx = 1\nprint(x)  # (D, T, V)\n```"
    assert problems(f"It is $(D, T, V)$.\n\n{code}") == []


def test_so_may_the_signature_of_what_the_page_names() -> None:
    assert problems("It is $(B, H_\\text{kv}, S, d_k)$.") != []
    assert problems("It is $(B, H_\\text{kv}, S, d_k)$, as `LayerCache` has it.") == []


def test_notation_does_not_stand_behind_its_own_tables() -> None:
    text = "# Notation\n\n| a | $(T, D)$ |\n|---|---|\n"
    assert prose_shape_problems(read_page(text, "docs/page.md"), ROOT) == []
    (problem,) = prose_shape_problems(read_page(text, "docs/notation.md"), ROOT)
    assert str(problem) == "docs/notation.md:3: (T, D): nothing has this shape"
    run = "\n```python\nassert x.shape == (T, D)\n```\n"
    assert prose_shape_problems(read_page(text + run, "docs/notation.md"), ROOT) == []


TABLE = """\
| argument | shape |
|---|---|
| `query`, `key`, `value` | `(..., T, d_k)`, `(..., S, d_k)`, `(..., S, d_v)` |
"""


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("(..., S, d_v)", "(..., T, d_v)", "5: (..., T, d_v): value has S there"),
        ("(..., T, d_k)", "(..., S, d_k)", "5: (..., S, d_k): query has T there"),
    ],
)  # fmt: skip
def test_an_argument_has_the_axes_of_its_name(
    right: str, wrong: str, reason: str
) -> None:
    assert problems(TABLE) == []
    assert problems(TABLE.replace(right, wrong)) == [f"docs/page.md:{reason}"]


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("A product of $(T, D)$ by $(D, 3D)$.", "A product of $(T, D)$ by $(3D, D)$.",
         "product of (T, D) by (3D, D): a product has D in both, inside"),
        ("$(T, d)$, $(S, d)$ and $(S, d_v)$.", "$(T, d)$, $(S, d)$ and $(T, d_v)$.",
         "(T, d), (S, d) and (T, d_v): there are as many values as keys, S"),
        ("As `view(B, H, T, d_k)`.", "As `view(B, H, d_k, T)`.",
         "(B, H, d_k, T): nothing has this shape"),
        (r"Weights, $T \times S$.", r"Weights, $S \times T$.",
         "(S, T): nothing has this shape"),
    ],
)  # fmt: skip
def test_shapes_go_together(right: str, wrong: str, reason: str) -> None:
    code = "\n\n```python\nx = 1\nprint(x)  # (D, 3D), (3D, D)\n```"
    assert problems(right + code) == []
    assert problems(wrong + code) == [f"docs/page.md:3: {reason}"]
