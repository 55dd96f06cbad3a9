import json
import zipfile
from pathlib import Path

from bookbinder.publishing.book import load_book
from bookbinder.publishing.offline import ARCHIVE, from_disk, write_archive
from bookbinder.writing import write_whole

LINKS = {
    '<a href="../02-root/#why">': '<a href="../02-root/index.html#why">',
    '<a href="chapters/01/">': '<a href="chapters/01/index.html">',
    '<a class="x" href="..">': '<a class="x" href="../index.html">',
    '<a href="." title="home">': '<a href="./index.html" title="home">',
    '<a href="../..#why">': '<a href="../../index.html#why">',
    '<a href="../?q=1">': '<a href="../index.html?q=1">',
    '<link rel="next" href="../b/">': '<link rel="next" href="../b/index.html">',
    '<link rel="preload" href="a.woff2" as="font" crossorigin>': "",
    '<a href="../../x/y.pdf">PDF</a><a href="../y.md">': '<a href="../y.md">',
    '<p class="without">Where scripts are allowed, it moves.': (
        '<p class="without">Where a server sends this page and scripts are allowed, '
        "it moves."
    ),
    'all: <a href="llms.txt">a</a>, <a href="x.zip">b</a>.': (
        'all: <a href="llms.txt">a</a>.'
    ),
}
OTHERS = [
    *('<a href="#why">', '<a href="notebook.ipynb">', '<a href="../assets/x.svg">'),
    *('<a href="https://example.org/">', '<a data-href="../x/">'),
]


def test_a_link_names_what_a_browser_finds_on_a_disk() -> None:
    links = LINKS | {link: link for link in OTHERS}
    assert {link: from_disk(link) for link in links} == links


def test_an_archive_is_the_site_made_to_be_read_from_a_disk(
    root: Path, site: Path
) -> None:
    book = load_book(root, {})
    index, worker = "search/search_index.json", "assets/javascripts/workers/search.js"
    write_whole(site / index, '{"docs": [{"location": ""}, {"location": "a/#b"}]}')
    write_whole(site / worker, "go()")
    write_archive(site, book)
    once = (site / ARCHIVE).read_bytes()
    (site / "index.html").chmod(0o600)
    write_archive(site, book)
    assert (site / ARCHIVE).read_bytes() == once
    with zipfile.ZipFile(site / ARCHIVE) as packed:
        files = {
            name.removeprefix("tested-transformer-book/"): packed.read(name).decode()
            for name in packed.namelist()
        }
    pages = ("chapters/01-sums/", "how-this-book-is-checked/", "")
    names = ["assets/book.css", worker, *(f"{page}index.html" for page in pages)]
    assert [*files] == [*names, "search/search_index.js", index, "read-me.txt"]
    assert '<a href="../../index.html#why">' in files["chapters/01-sums/index.html"]
    places = [entry["location"] for entry in json.loads(files[index])["docs"]]
    assert places == ["index.html", "a/index.html#b"]
    assert files["search/search_index.js"] == f"var __index = {files[index]}"
    assert files[worker].startswith("function __worker() {go()\n}\n")
    assert "The Book" in files["read-me.txt"]
