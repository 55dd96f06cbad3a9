import io
import zipfile
from pathlib import Path

import pytest

from bookbinder.publishing.offline import ARCHIVE, archive, from_disk, write_archive


@pytest.mark.parametrize(
    ("link", "named"),
    [
        ('<a href="../02-root/">', '<a href="../02-root/index.html">'),
        ('<a href="../02-root/#why">', '<a href="../02-root/index.html#why">'),
        ('<a href="chapters/01/">', '<a href="chapters/01/index.html">'),
        ('<a class="x" href="..">', '<a class="x" href="../index.html">'),
        ('<a href="." title="home">', '<a href="./index.html" title="home">'),
        ('<link rel="preload" href="a.woff2" as="font" crossorigin>', ""),
        ('<a href="../../">', '<a href="../../index.html">'),
        ('<a href="../..">', '<a href="../../index.html">'),
        ('<a href="../..#why">', '<a href="../../index.html#why">'),
        ('<link rel="next" href="../b/">', '<link rel="next" href="../b/index.html">'),
        ('<a href="../?q=1">', '<a href="../index.html?q=1">'),
        *[
            (same, same)
            for same in (
                '<a href="#why">',
                '<a href="notebook.ipynb">',
                '<a href="../assets/x.svg">',
                '<a href="https://example.org/">',
                '<a data-href="../x/">',
            )
        ],
    ],
)
def test_a_link_names_what_a_browser_finds_on_a_disk(link: str, named: str) -> None:
    assert from_disk(link) == named


def test_an_archive_is_the_site_and_a_word_on_how_to_read_it(site: Path) -> None:
    packed = zipfile.ZipFile(io.BytesIO(archive(site, "The Book", "Free.")))
    assert packed.testzip() is None
    names = packed.namelist()
    assert names == [
        f"tested-transformer-book/{name}"
        for name in (
            "assets/book.css",
            "chapters/01-sums/index.html",
            "index.html",
            "verified/index.html",
            "read-me.txt",
        )
    ]
    chapter = packed.read(names[1]).decode()
    assert '<a href="../../index.html#why">' in chapter
    assert "The Book" in packed.read(names[-1]).decode()


def test_the_same_site_makes_the_same_archive(site: Path, tmp_path: Path) -> None:
    once = archive(site, "The Book", "Free.")
    for file in sorted(site.rglob("*"), reverse=True):
        if file.is_file():
            file.write_bytes(file.read_bytes())
            file.chmod(0o600)
    write_archive(site, "The Book", "Free.")
    write_archive(site, "The Book", "Free.")
    assert (site / ARCHIVE).read_bytes() == once


def test_from_a_disk_the_search_has_its_index_as_a_script(site: Path) -> None:
    (site / "search").mkdir()
    (site / "search" / "search_index.json").write_text('{"docs": []}', "utf-8")
    packed = zipfile.ZipFile(io.BytesIO(archive(site, "The Book", "Free.")))
    script = packed.read("tested-transformer-book/search/search_index.js")
    assert script == b'var __index = {"docs": []}'


def test_the_archive_does_not_offer_what_it_does_not_hold(site: Path) -> None:
    home = site / "index.html"
    offers = ' <a href="llms.txt">a</a>, <a href="x.zip">b</a>, <a href="x.pdf">c</a>.'
    home.write_text(f"<p>The whole:{offers}</p>", "utf-8")
    packed = zipfile.ZipFile(io.BytesIO(archive(site, "The Book", "Free.")))
    text = packed.read("tested-transformer-book/index.html").decode()
    assert text == '<p>The whole: <a href="llms.txt">a</a>.</p>'
