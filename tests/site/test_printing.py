"""A printed book is one document, with bookmarks and with links that lead within."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookbinder.page import read_page
from bookbinder.publishing.book import Book, Leaf
from bookbinder.publishing.printing import print_book

PAGE = """<!doctype html><html lang="en"><head></head><body><nav>not this</nav>
<article><h1 id="top">{title}</h1><p><a href="{link}">on</a></p></article>
</body></html>"""


@pytest.mark.browser
def test_a_book_is_printed(tmp_path: Path) -> None:
    leaves: list[Leaf] = []
    for source, link in (("index.md", "end/#top"), ("end.md", "../")):
        leaf = Leaf(source, "", read_page("", f"docs/{source}"))
        leaf.file(tmp_path).parent.mkdir(exist_ok=True)
        html = PAGE.format(title=source, link=link)
        leaf.file(tmp_path).write_text(html, "utf-8")
        leaves.append(leaf)
    before = sorted(tmp_path.rglob("*"))
    book = Book("The Book", "Of two pages.", "Free.", (*leaves,))
    # It starts a browser of its own, and a thread may have but one of them.
    with ThreadPoolExecutor(1) as beside:
        pdf = beside.submit(print_book, tmp_path, book).result()
    assert len(re.findall(rb"/Type /Page\n", pdf)) == 3  # the contents, two pages
    # Titles are in the outline, places in the table of names.
    assert re.search(rb"/Title \(end\.md\)", pdf)
    assert b"/end--top" in pdf
    assert b"/index" in pdf
    assert sorted(tmp_path.rglob("*")) == before
