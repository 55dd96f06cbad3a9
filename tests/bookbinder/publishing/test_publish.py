"""All of it together, on the small site."""

import re
import zipfile
from pathlib import Path

import pytest

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.feet import SiteError
from bookbinder.publishing.publish import publish
from bookbinder.publishing.records import foundations, make_record, write_record
from bookbinder.page import load_page

HOME = Addresses("https://me.github.io/book/", "https://github.com/me/book")


def test_every_page_gets_what_belongs_beside_it(root: Path, site: Path) -> None:
    publish(site, root, HOME, archive=True)
    made = sorted(
        file.relative_to(site).as_posix()
        for file in site.rglob("*")
        if file.is_file() and file.suffix not in (".html", ".css")
    )
    assert made == [
        "_headers",
        "chapters/01-sums/index.md",
        "chapters/01-sums/notebook.ipynb",
        "index.md",
        "listings/tested_transformer/adding-add.py",
        "llms.txt",
        "tested-transformer-book.zip",
        "verified/index.md",
    ]
    for page in ("index.html", "chapters/01-sums/index.html", "verified/index.html"):
        text = (site / page).read_text("utf-8")
        assert text.count("Not verified</a> in this build.") == 1, page
        links = re.findall(r'href="([^":#]*)"', text.partition("</article>")[2])
        assert links
        assert [
            link for link in links if not (site / page).parent.joinpath(link).exists()
        ] == [], page
    with zipfile.ZipFile(site / "tested-transformer-book.zip") as packed:
        home = packed.read("tested-transformer-book/index.html").decode()
    assert "The whole book to take away:" in home


def test_a_page_that_was_verified_says_so_everywhere(root: Path, site: Path) -> None:
    page = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    write_record(root, page, make_record(page, {}, root, foundations(root)))
    publish(site, root, HOME)
    chapter = (site / "chapters" / "01-sums" / "index.html").read_text("utf-8")
    assert "3 blocks run, 2 outputs compared, 6 source lines listed" in chapter
    assert "Not verified" in (site / "index.html").read_text("utf-8")
    table = (site / "verified" / "index.html").read_text("utf-8")
    cells = [re.sub("<[^>]*>", " ", row).split() for row in table.split("<tr>")]
    assert ["Sums", "3", "2", "6"] in [row[:4] for row in cells]
    assert not [row for row in cells if row[:1] == ["Home"]]
    assert ["together", "3", "2", "6"] in [row[:4] for row in cells]
    assert "1 of 3 pages verified, with PyTorch" in table
    twin = (site / "verified" / "index.md").read_text("utf-8")
    assert "| [Sums](../chapters/01-sums/index.md) | 3 | 2 | 6 |" in twin
    assert "Home" not in twin


def test_a_site_is_published_once(root: Path, site: Path) -> None:
    publish(site, root, HOME)
    before = {file: file.read_bytes() for file in site.rglob("*") if file.is_file()}
    with pytest.raises(SiteError, match="the site has its feet already"):
        publish(site, root, HOME)
    assert before == {file: file.read_bytes() for file in before}


def test_a_page_that_was_not_built_is_named(root: Path, site: Path) -> None:
    (root / "docs" / "new.md").write_text("# New\n", "utf-8")
    with pytest.raises(SiteError, match=r"docs/new\.md: the site has no .*index\.html"):
        publish(site, root, HOME)


def test_a_page_of_records_without_its_place_is_refused(root: Path, site: Path) -> None:
    file = site / "verified" / "index.html"
    file.write_text(file.read_text("utf-8").replace("are set out", "stand"), "utf-8")
    with pytest.raises(SiteError, match=r"verified\.md: wanted once, as a paragraph"):
        publish(site, root, HOME)
