import re
from pathlib import Path

import pytest

from bookbinder.publishing.book import load_book


def test_pages_come_in_the_order_of_the_navigation(root: Path) -> None:
    book = load_book(root, {})
    assert [
        (entry.part, entry.title, entry.address, entry.name, entry.up)
        for entry in book.entries
    ] == [
        ("", "Home", "", "index", ""),
        ("I. Sums", "Sums", "chapters/01-sums/", "01-sums", "../../"),
        ("", "Checked", "how-this-book-is-checked/", "how-this-book-is-checked", "../"),
    ]
    assert (book.name, book.license) == ("The Book", "Free.")
    assert (book.site, book.repository) == ("", "")


def test_a_fork_leads_to_the_fork(root: Path) -> None:
    addresses = {"SITE_URL": "https://me.org/book/", "REPO_URL": "https://me.org/r"}
    book = load_book(root, addresses)
    assert (book.site, book.repository) == ("https://me.org/book/", "https://me.org/r")
    for url in ("me/book", "javascript://x", 'https://a.org/"b'):
        message = re.escape(f"REPO_URL={url}: wanted an add")
        with pytest.raises(ValueError, match=message):
            load_book(root, {"REPO_URL": url})
