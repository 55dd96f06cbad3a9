from pathlib import Path

import pytest

from bookbinder.publishing.passages import linked, passages
from bookbinder.page import load_page, read_page

ROOT = Path(__file__).parents[3]


def test_a_page_is_taken_apart_in_its_order(root: Path) -> None:
    page = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    assert page.problems == []
    parts = list(passages(page, root))
    assert [part.kind for part in parts] == [
        *("prose", "run", "output", "shown", "run"),
        *("prose", "shown", "run", "output", "prose"),
    ]
    assert [part.line for part in parts if part.kind == "run"] == [
        block.line for block in page.blocks
    ]


def test_what_no_reader_sees_is_left_out(root: Path) -> None:
    page = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    text = "\n\n".join(part.markdown() for part in passages(page, root))
    for hidden in ("boost", "<!--", "%%", "///", "--8<--", "open: False"):
        assert hidden not in text
    assert text.startswith("# Sums\n\nHow do you add two numbers? Ask")
    assert 'A["a: (B)"] --> C["c: (B)"]' in text
    assert "**Solution**\n\nSee `[a](b)`" in text


def test_a_listing_is_written_out_and_says_where_it_is_from(root: Path) -> None:
    page = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    (listing,) = [part for part in passages(page, root) if part.title]
    assert listing.markdown() == (
        "From `src/tested_transformer/adding.py`:\n\n```python\ndef add(a, b):\n"
        '    """Add two numbers."""\n    if a < 0:\n        a = -a\n'
        "        return b - a\n    return a + b\n```"
    )


def test_a_reference_shows_the_source_of_its_module(root: Path) -> None:
    page = read_page(
        "# Adding\n\n::: tested_transformer.adding\n    options: {}\n\nThat is all.\n",
        "a.md",
    )
    heading, module, rest = passages(page, root)
    assert (heading.text, rest.text) == ("# Adding", "That is all.")
    assert module.markdown().startswith(
        'From `src/tested_transformer/adding.py`:\n\n```python\n"""Sums.'
    )


def test_a_fence_in_a_fence_stays_inside(root: Path) -> None:
    page = read_page("````markdown\n```text\nx\n```\n````\n", "a.md")
    (shown,) = passages(page, root)
    assert shown.markdown() == "````markdown\n```text\nx\n```\n````"


def test_links_lead_elsewhere_and_what_only_looks_like_one_stays() -> None:
    text = "[`a[0]`](x.md) and ![two\nlines](y.svg), `[a](b)`, $[x](y)$, [no](-)"

    def address(target: str) -> str:
        return "" if target == "-" else target.upper()

    assert linked(text, address) == (
        "[`a[0]`](X.MD) and ![two\nlines](Y.SVG), `[a](b)`, $[x](y)$, no"
    )


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs").rglob("*.md")), ids=lambda file: file.name
)
def test_nothing_of_a_page_of_the_book_is_lost(file: Path) -> None:
    page = load_page(file, ROOT)
    parts = list(passages(page, ROOT))
    runs = [(part.line, part.text) for part in parts if part.kind == "run"]
    assert runs == [(block.line, block.code) for block in page.blocks]
    outputs = [part.text for part in parts if part.kind == "output"]
    assert outputs == [block.output.text for block in page.blocks if block.output]
    listed = [part.title for part in parts if part.title.endswith((".py", ".js"))]
    assert listed[: len(page.listings)] == [listing.path for listing in page.listings]
    prose = "\n".join(part.text for part in parts if part.kind == "prose")
    headings = [line for line in page.lines if line.startswith("## ")]
    assert [line for line in prose.split("\n") if line.startswith("## ")] == headings
