from pathlib import Path

import pytest

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import load_book
from bookbinder.publishing.passages import passages
from bookbinder.publishing.twins import summary_of, twin, written_out
from bookbinder.page import read_page


def test_links_of_a_twin_lead_to_twins(root: Path) -> None:
    leaf = load_book(root).leaves[1]
    text = twin(leaf, list(passages(leaf.page, root)))
    assert "Ask the [home page](../../index.md#why), or read [on](#more)." in text
    assert "[elsewhere](https://example.org/x)" in text
    assert "](../../assets/figures/01-sums/total.svg)" in text
    assert "See `[a](b)` and $[x](y)$" in text


def test_links_of_the_home_page_need_no_way_up(root: Path) -> None:
    leaf = load_book(root).leaves[0]
    text = twin(leaf, list(passages(leaf.page, root)))
    assert "| [Sums](chapters/01-sums/index.md) | What is a sum? |" in text


@pytest.mark.parametrize("site", ["", "https://example.org/book/"])
def test_one_file_leads_to_all_pages(root: Path, site: str) -> None:
    book = load_book(root)
    parts = {leaf.source: list(passages(leaf.page, root)) for leaf in book.leaves}
    assert written_out(book, parts, Addresses(site=site)) == (
        "# The Book\n\n> A book of sums & little else.\n\n"
        "Every link leads to a page as Markdown, its listings written out. Each block"
        " of Python has run, and the text block behind it is what it printed.\n\n"
        "Free.\n\n"
        "## I. Sums\n\n"
        f"- [Sums]({site}chapters/01-sums/index.md): What is a sum?\n\n"
        "## Beside the chapters\n\n"
        f"- [Home]({site}index.md): A book of sums.\n"
        f"- [Verified]({site}verified/index.md): Who says so?\n"
    )


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("# A\n\nOne [two](x.md)\nthree? Four.\n", "One two three?"),
        ("# A\n\n| a |\n|---|\n\n*B* is 0.5 c. D.\n", "*B* is 0.5 c."),
        ("# A\n\nno end\n", "no end"),
        ("# A\n", ""),
    ],
)
def test_a_summary_is_the_first_sentence(text: str, summary: str, root: Path) -> None:
    assert summary_of(list(passages(read_page(text, "a.md"), root))) == summary
