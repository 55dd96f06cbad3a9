from pathlib import Path

from bookbinder.page import load_page, read_page
from bookbinder.publishing.book import load_book
from bookbinder.publishing.plain_markdown import llms, passages, plain_markdown

ROOT = Path(__file__).parents[3]


def test_a_twin_is_the_page_as_plain_markdown(root: Path) -> None:
    entry = load_book(root, {}).entries[1]
    assert entry.page.problems == []
    text = plain_markdown(list(passages(entry.page, root)))
    for hidden in ("boost", "<!--", "%%", "///", "--8<--", "open: False"):
        assert hidden not in text
    assert text.startswith("# Sums\n\nHow do you add two numbers? Ask")
    assert 'A["a: (B)"] --> C["c: (B)"]' in text
    assert (
        "**Solution**\n\nSee `[a](b)` and $[x](y)$, or [elsewhere](https://ex" in text
    )
    assert (
        "From `src/tested_transformer/adding.py`:\n\n```python\ndef add(a, b):\n"
        '    """Add two numbers."""\n    if a < 0:\n' in text
    )
    # Its links are those of the page, whose place in docs it has in the site.
    assert "the [home page](../index.md#why), or read [on](#more)." in text


def test_a_reference_shows_the_source_of_its_module(root: Path) -> None:
    reference = "# A\n\n::: tested_transformer.adding\n    options: {}"
    (shown,) = passages(read_page(reference, "a.md"), root)
    opening = "# A\n\nFrom `src/tested_transformer/adding.py`:\n\n```python\n"
    assert shown.text.startswith(opening)
    assert ":::" not in shown.text
    assert "options" not in shown.text


def test_a_fence_in_a_fence_stays_inside(root: Path) -> None:
    text = "````markdown\n```text\nx\n```\n````"
    (shown,) = passages(read_page(f"{text}\n", "a.md"), root)
    assert shown.text == text


def test_one_file_leads_to_all_pages(root: Path) -> None:
    site = "https://example.org/book/"
    book = load_book(root, {"SITE_URL": site})
    text = llms(book)
    assert text.startswith(
        "# The Book\n\n> A book of sums & little else.\n\nEvery link"
    )
    assert text.endswith(
        "\n\nFree.\n\n## I. Sums\n\n"
        f"- [Sums]({site}chapters/01-sums.md): How sums are made.\n\n"
        "## Beside the chapters\n\n"
        f"- [Home]({site}index.md)\n- [Checked]({site}how-this-book-is-checked.md)\n"
    )


def test_nothing_of_a_page_of_the_book_is_lost() -> None:
    for file in (ROOT / "docs").rglob("*.md"):
        page = load_page(file, ROOT)
        parts = list(passages(page, ROOT))
        runs = [part.line for part in parts if part.kind == "run"]
        assert runs == [block.line for block in page.blocks]
        text = "\n".join(part.text for part in parts)
        expected = [block.code for block in page.blocks]
        expected += [block.output.text for block in page.blocks if block.output]
        expected += [f"From `{listing.path}`" for listing in page.listings]
        expected += [line for _, line in page.prose if line.startswith("## ")]
        assert [part for part in expected if part.strip("\n") not in text] == []
