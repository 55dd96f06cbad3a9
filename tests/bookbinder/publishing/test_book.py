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


@pytest.mark.parametrize(
    ("sizes", "files"),
    [
        ([1, 1, 3, 2], [("iii", 5), ("iv", 2)]),
        ([2, 1], [("i", 2), ("ii", 1)]),
    ],
)
def test_every_page_is_in_one_part_to_print(
    sizes: list[int], files: list[tuple[str, int]]
) -> None:
    titles = [
        title
        for title, size in zip(("I", "II", "III", "IV"), sizes, strict=False)
        for _ in range(size)
    ]
    pages = [read_page("", f"docs/{number}.md") for number in range(len(titles))]
    entries = [Entry("a", *pair) for pair in zip(titles, pages, strict=True)]
    found = parts(Book("The Book", "", "", (*entries,)))
    assert [entry for part in found.values() for entry in part.entries] == entries
    assert [(name, len(part.entries)) for name, part in found.items()] == [
        (f"tested-transformer-{name}.pdf", size) for name, size in files
    ]


def test_a_fork_leads_to_the_fork(root: Path) -> None:
    addresses = {"SITE_URL": "https://me.org/book/", "REPO_URL": "https://me.org/r"}
    book = load_book(root, addresses)
    assert (book.site, book.repository) == ("https://me.org/book/", "https://me.org/r")


@pytest.mark.parametrize("url", ["me/book", "javascript://x", 'https://a.org/"b'])
def test_what_is_no_address_is_refused(url: str, root: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"REPO_URL={url}: wanted an add")):
        load_book(root, {"REPO_URL": url})
