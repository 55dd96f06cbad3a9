"""A listing is what the words above it say, and no section is listed twice."""

from pathlib import Path

import pytest

from bookbinder.names.announcing import listing_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]
MUSEUM = "src/tested_transformer/museum/softmaxes.py"
MASKS = "src/tested_transformer/masks.py"
LAYER = "src/tested_transformer/multihead.py"


def listing(path: str, section: str) -> str:
    return f'```py title="{path}"\n--8<-- "{path}:{section}"\n```\n'


def problems(*parts: str) -> list[str]:
    page = read_page("# A page\n\n" + "\n".join(parts), "page.md")
    assert page.problems == []
    return [f"{p.line}: {p.reason}" for p in listing_problems(page, ROOT)]


@pytest.mark.parametrize(
    "parts",
    [
        ("## Minus five\n", listing(MUSEUM, "minus_five")),
        # The heading spells out another section, and what is announced is listed.
        ("## Minus five\n", "The inverted mask:\n", listing(MUSEUM, "inverted_mask")),
        ("`causal_mask` is short:\n", listing(MASKS, "causal")),
        ("`padding_mask`, then `causal_mask`:\n", listing(MASKS, "padding"),
         listing(MASKS, "causal")),
        # A part of what is named.
        ("`MultiHeadAttention` attends:\n", listing(LAYER, "forward")),
        # What a link leads to is listed there.
        ("Not [`padding_mask`](08.md#padding):\n", listing(MASKS, "causal")),
        # A run between them.
        ("`padding_mask` is for later:\n", "```python\nx = 1\n```\n",
         listing(MASKS, "causal")),
    ],
)  # fmt: skip
def test_a_listing_that_is_announced_is_accepted(parts: tuple[str, ...]) -> None:
    assert problems(*parts) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            ("## Minus five\n", listing(MUSEUM, "inverted_mask")),
            f"5: the heading speaks of {MUSEUM}:minus_five, and it is not listed here",
        ),
        (
            ("`padding_mask` is short:\n", listing(MASKS, "causal")),
            "5: the words above speak of padding_mask, and this lists none of it",
        ),
        (
            ("Two masks:\n", listing(MASKS, "causal"), listing(MASKS, "causal")),
            f"9: {MASKS}:causal is listed above, at line 5",
        ),
    ],
)
def test_a_listing_of_something_else_is_refused(
    parts: tuple[str, ...], reason: str
) -> None:
    assert problems(*parts) == [reason]


def test_what_is_in_no_file_is_left_to_the_audit() -> None:
    assert problems("`f` is:\n", listing("src/none.py", "f")) == []
    assert problems("`causal_mask`:\n", listing(MASKS, "none")) == []


def test_marks_of_a_section_come_in_pairs() -> None:
    marks = "It begins at `# --8<-- [start:scores]` and ends at\n`# --8<-- [end:{}]`.\n"
    assert problems(marks.format("scores")) == []
    assert problems(marks.format("weights")) == [
        "3: [start:scores] and [end:scores] come in pairs",
        "4: [start:weights] and [end:weights] come in pairs",
    ]


def test_a_heading_that_is_nearly_a_name_is_none() -> None:
    run = listing(MUSEUM, "minus_five")
    assert problems("## Minus five\n", run) == []
    assert problems("## Five hundred and minus one\n", run) == []
    assert problems("## Minus nine\n", run) == [
        "5: the heading is nearly minus_five, which is listed here: name it so"
    ]
