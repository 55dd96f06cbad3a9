import re
from pathlib import Path

from bookbinder.publishing.book import load_book
from bookbinder.publishing.printing import one_document


def test_all_pages_are_one_document(root: Path, site: Path) -> None:
    text = one_document(site, load_book(root, {}))
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    # The contents, and every link and reference within, lead to something there.
    inside = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)|labelledby="([^"]*)"', text)
    targets = ["".join(groups) for groups in inside]
    assert {"index", "01-sums", "index--why", "01-sums--more"} <= {*targets}
    assert {"01-sums--p", "01-sums--t"} <= {*targets}
    assert set(targets) <= set(ids)
    order = re.findall(r'<article id="([^"]*)"', text)
    assert order == ["index", "01-sums", "how-this-book-is-checked"]
    assert 'href="../assets/book.css"' in text
    assert '<details open class="solution">' in text
    assert "<nav><a" not in text
    assert "headerlink" not in text
