"""A part is printed as one document, with bookmarks and links that lead within."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bookbinder.page import read_page
from bookbinder.publishing.book import Book, Entry, parts
from bookbinder.publishing.printing import one_document, print_book

PAGE = """<!doctype html><html lang="en"><head></head><body><nav>not this</nav>
<article><h1 id="top">{title}</h1><p><a href="{link}">on</a></p></article>
</body></html>"""


@pytest.mark.browser
def test_a_book_is_printed_part_by_part(tmp_path: Path) -> None:
    entries: list[Entry] = []
    for source, part, link in (
        ("index.md", "", "one/end/#top"),
        ("one/start.md", "I. One", "../../"),
        ("one/end.md", "I. One", "../../two/#top"),
        ("two.md", "II. Two", "../one/end/#top"),
    ):
        entry = Entry(source, part, read_page("", f"docs/{source}"))
        entry.file(tmp_path).parent.mkdir(parents=True, exist_ok=True)
        html = PAGE.format(title=source, link=link)
        entry.file(tmp_path).write_text(html, "utf-8")
        entries.append(entry)
    before = sorted(tmp_path.rglob("*"))
    book = Book("The Book", "Of four pages.", "Free.", (*entries,))
    # It starts a browser of its own, and a thread may have but one of them.
    with ThreadPoolExecutor(1) as beside:
        pdfs = beside.submit(lambda: dict(print_book(tmp_path, book))).result()
    one, two = "tested-transformer-i-one.pdf", "tested-transformer-ii-two.pdf"
    assert [*pdfs] == [one, two]
    # The contents of the part, and its pages: the home page goes with the first.
    for name, count in ((one, 4), (two, 2)):
        assert len(re.findall(rb"/Type /Page\n", pdfs[name])) == count
        # No link leads to the server that it was printed from.
        assert b"127.0.0.1" not in pdfs[name]
    # Titles are in the outline, places in the table of names.
    assert re.search(rb"/Title \(one/end\.md\)", pdfs[one])
    assert b"/one-end--top" in pdfs[one]
    assert b"/index" in pdfs[one]
    assert sorted(tmp_path.rglob("*")) == before
    there = replace(parts(book)[two], site="https://book.example/")
    assert 'href="https://book.example/one/end/#top"' in one_document(tmp_path, there)
    assert 'href="../assets' not in one_document(tmp_path, parts(book)[two])
