import re
from pathlib import Path

import pytest

from bookbinder.page import read_page
from bookbinder.publishing.book import Book, Entry, load_book, parts


def test_pages_come_in_the_order_of_the_navigation(root: Path) -> None:
    book = load_book(root, {})
    assert [
        (entry.part, entry.title, entry.folder, entry.name, entry.up)
        for entry in book.entries
    ] == [
        ("", "Home", "", "index", ""),
        ("I. Sums", "Sums", "chapters/01-sums", "01-sums", "../../"),
        *[("", "Checked", *["how-this-book-is-checked"] * 2, "../")],
    ]
    assert (book.name, book.license) == ("The Book", "Free.")
    assert (book.site, book.repository) == ("", "")


def test_every_page_is_in_one_part_to_print() -> None:
    for titles, sizes in (
        ("I II III III III IV IV", {"iii": 5, "iv": 2}),
        ("I I II", {"i": 2, "ii": 1}),
    ):
        entries = [
            Entry("a", title, read_page("", f"docs/{number}.md"))
            for number, title in enumerate(titles.split())
        ]
        books = parts(Book("The Book", "", "", (*entries,)))
        assert [entry for part in books.values() for entry in part.entries] == entries
        assert {name: len(part.entries) for name, part in books.items()} == {
            f"tested-transformer-{name}.pdf": size for name, size in sizes.items()
        }


def test_a_fork_leads_to_the_fork(root: Path) -> None:
    addresses = {"SITE_URL": "https://me.org/book/", "REPO_URL": "https://me.org/r"}
    book = load_book(root, addresses)
    assert (book.site, book.repository) == ("https://me.org/book/", "https://me.org/r")
    for url in ("me/book", "javascript://x", 'https://a.org/"b'):
        wanted = re.escape(f"REPO_URL={url}: wanted an add")
        with pytest.raises(ValueError, match=wanted):
            load_book(root, {"REPO_URL": url})
