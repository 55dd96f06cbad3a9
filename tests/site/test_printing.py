"""A page is printed with its folds open, and links that lead to the site or within."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bookbinder.browser import chromium
from bookbinder.page import read_page
from bookbinder.publishing import printing
from bookbinder.publishing.book import Book, Entry
from bookbinder.writing import write_whole

PAGE = """<!doctype html><html lang="en"><body><h1 id="top">A title</h1>
<a href="#top">up</a> <svg><a href="../two/#top"><text y="9">on</text></a></svg>
<details><summary>Solution</summary><h2>Folded</h2></details></body></html>"""


@pytest.mark.browser
def test_a_page_is_printed_for_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Entry("One", "I", read_page("```python\nx = 1\n```\n", "docs/one.md"))
    two = Entry("Two", "I", read_page("", "docs/two.md"))
    write_whole(one.file(tmp_path), PAGE)
    before = sorted(tmp_path.rglob("*"))
    book = Book("The Book", "Of two pages.", "Free.", (one, two))
    books = book, replace(book, site="https://book.example/")

    def printed() -> list[bytes]:
        with chromium() as browser:
            monkeypatch.setattr(printing, "chromium", lambda: nullcontext(browser))
            pdfs = [dict(printing.print_book(tmp_path, book)) for book in books]
        return [pdf for each in pdfs for pdf in each.values()]

    # A thread may have but one browser, and this one has that of the other tests.
    with ThreadPoolExecutor(1) as beside:
        without, within = beside.submit(printed).result()
    # No link leads to the server here, and a folded heading is in the outline, too.
    assert re.findall(rb"/URI \((.*)\)", without) == []
    addresses = re.findall(rb"/URI \((.*)\)", within)
    assert {*addresses} == {b"https://book.example/two/#top"}
    assert b"(Folded)" in within
    assert sorted(tmp_path.rglob("*")) == before
