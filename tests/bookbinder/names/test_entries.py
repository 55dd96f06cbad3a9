"""Names and formulas of the glossary stand in sections that their entries link to."""

from pathlib import Path

import pytest

from bookbinder.names.entries import entry_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]
FULL = "[When the context is full](chapters/17-the-cache.md#when-the-context-is-full)"


def problems(entry: str, path: str = "docs/glossary.md") -> list[str]:
    page = read_page(f"# Glossary\n\n## Entry\n\n{entry}\n", path)
    return [str(problem) for problem in entry_problems(page, ROOT)]


@pytest.mark.parametrize(
    "entry",
    [
        f"As far as `max_seq_len`. See {FULL}.",
        "The mask, `causal_mask`. See [No peeking](chapters/06-no-peeking.md).",
        "What it is: `causal_mask`.",
    ],
)
def test_a_name_that_is_explained_is_accepted(entry: str) -> None:
    assert problems(entry) == []


@pytest.mark.parametrize(
    ("entry", "span"),
    [
        (f"As far as `max_length`. See {FULL}.", "max_length"),
        ("It is `num_heads`. See [Fewer](chapters/17-the-cache.md#sources).",
         "num_heads"),
        ("It is `causal_masks()`. See [No peeking](chapters/06-no-peeking.md).",
         "causal_masks()"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_is_refused(entry: str, span: str) -> None:
    assert problems(entry) == [
        f"docs/glossary.md:5: `{span}`: no section that this entry links to has it"
    ]
    assert problems(entry, "docs/index.md") == []


SCALE = "[The function](chapters/13-fast-paths.md#the-function)"
MEETING = "[The derivation](chapters/02-square-root.md#the-derivation)"


def test_so_does_a_formula_in_the_one_that_comes_next() -> None:
    right = rf"Times $1 / \sqrt{{d_k}}$: {SCALE}. Why: {MEETING}. As wide as $2 D$."
    assert problems(right) == []
    for slip in ("1 / d_k", r"1 / \sqrt{D}", r"2 / \sqrt{d_k}"):
        assert problems(right.replace(r"1 / \sqrt{d_k}", slip)) == [
            f"docs/glossary.md:5: ${slip}$: the section that is linked to next "
            "has it not"
        ]
