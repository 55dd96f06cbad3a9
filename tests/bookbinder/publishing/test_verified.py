from collections.abc import Callable
from pathlib import Path

import pytest

from bookbinder.publishing.book import Book, load_book
from bookbinder.publishing.records import foundations, make_record
from bookbinder.publishing.verified import BEFORE, PAGE, Records, as_html, as_markdown

ROOT = Path(__file__).parents[3]


def test_nothing_is_claimed_where_nothing_was_verified(root: Path) -> None:
    book = load_book(root)
    records = dict.fromkeys((leaf.source for leaf in book.leaves), None)
    for text in (as_html(book, records), as_markdown(book, records)):
        assert "None of the pages has been verified in this build." in text
        assert "not in this build" in text
        assert "PyTorch" not in text


@pytest.mark.parametrize("write", [as_html, as_markdown])
def test_verified_pages_are_counted_with_their_versions(
    write: Callable[[Book, Records], str], root: Path
) -> None:
    book = load_book(root)
    records = {
        leaf.source: make_record(leaf.page, {}, root, foundations(root))
        for leaf in book.leaves
    }
    first, *_ = records.values()
    assert f"3 of 3 pages verified, with PyTorch {first.torch}" in write(book, records)


def test_the_page_of_the_book_has_its_place_once() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    assert f"\n\n{BEFORE}\n\n" in text
    assert text.count(BEFORE) == 1
