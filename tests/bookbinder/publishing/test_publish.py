"""All of it together, on the small site."""

import re
from pathlib import Path

import pytest

from bookbinder.page import load_page
from bookbinder.publishing import printing
from bookbinder.publishing.book import load_book
from bookbinder.publishing.pages import CHECKED
from bookbinder.publishing.publish import PLACE, publish
from bookbinder.publishing.records import foundations, write_record

ROOT = Path(__file__).parents[3]


def test_every_page_gets_what_belongs_beside_it(
    root: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "sitemap.xml").write_text("<urlset/>")
    book = load_book(root, {})
    printed = [("chapters/01-sums.pdf", b"%PDF")]
    monkeypatch.setattr(printing, "print_book", lambda site, book: printed)
    publish(site, root, book, pdf=True)
    files = {
        file.relative_to(site).as_posix()
        for file in site.rglob("*")
        if file.is_file() and file.suffix not in (".html", ".css")
    }
    shipped = ("assets/js/gpt/engine.js", "assets/models/grammar/model.safetensors")
    assert {*shipped} <= files
    assert {name for name in files if not name.startswith("assets/")} == {
        "_headers",
        "chapters/01-sums.ipynb",
        "chapters/01-sums.md",
        "chapters/01-sums.pdf",
        "how-this-book-is-checked.md",
        "index.md",
        "listings/tested_transformer/adding-add.py",
        "llms.txt",
        "tested-transformer-book.zip",
    }
    for page in ("", "chapters/01-sums", "how-this-book-is-checked"):
        text = (site / page / "index.html").read_text("utf-8")
        assert text.count("Not verified</a> in this build.") == 1, page
        # Without an address no link is full, and nothing is there that needs one.
        head = text.partition("</head>")[0].replace("https://schema.org", "")
        assert "https:" not in head
        assert '<meta name="twitter:card" content="summary">' in head
        links = re.findall(r'href="([^":#]*)"', text.partition("</nav>")[2])
        assert links
        assert [link for link in links if not (site / page / link).exists()] == []
    home = (site / "index.html").read_text("utf-8")
    assert "The whole book to take away:" in home


def test_the_page_about_checks_has_the_records(root: Path, site: Path) -> None:
    page = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    write_record(root, page, {}, foundations(root))
    publish(site, root, load_book(root, {}))
    chapter = (site / "chapters" / "01-sums" / "index.html").read_text("utf-8")
    assert "3 blocks run, 2 outputs compared, 6 source lines listed" in chapter
    text = (site / CHECKED.removesuffix(".md") / "index.html").read_text("utf-8")
    cells = [re.sub("<[^>]*>", " ", row).split()[:4] for row in text.split("<tr>")]
    assert ["Sums", "3", "2", "6"] in cells
    assert '<a href="../chapters/01-sums/">' in text
    assert "1 of 3 pages are verified in this build." in text
    markdown = (site / CHECKED).read_text("utf-8")
    assert "| [Sums](chapters/01-sums.md) | 3 | 2 | 6 |" in markdown
    assert PLACE not in text + markdown
    assert (ROOT / "docs" / CHECKED).read_text("utf-8").count(f"\n\n{PLACE}\n") == 1


def test_a_site_that_cannot_be_finished_is_left_alone(root: Path, site: Path) -> None:
    book = load_book(root, {})
    missing = site / CHECKED.removesuffix(".md") / "index.html"
    content = missing.read_bytes()
    missing.unlink()
    before = contents(site)
    with pytest.raises(FileNotFoundError, match="is-checked"):
        publish(site, root, book)
    assert contents(site) == before
    missing.write_bytes(content)
    publish(site, root, book)
    before = contents(site)
    with pytest.raises(ValueError, match="the site shows 0 blocks"):
        publish(site, root, book)
    assert contents(site) == before


def contents(site: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}
