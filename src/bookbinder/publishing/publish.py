"""Add to a built site all that a reader takes away from it."""

import os
from html import escape
from pathlib import Path

from bookbinder.copying.files import write_standalone_files
from bookbinder.publishing import verified
from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import Book, Leaf, load_book
from bookbinder.publishing.feet import SiteError, foot, with_foot
from bookbinder.publishing.notebooks import NOTEBOOK, notebook
from bookbinder.publishing.offline import ARCHIVE, write_archive
from bookbinder.publishing.passages import Passage, passages
from bookbinder.publishing.policy import write_headers
from bookbinder.publishing.records import foundations, fresh_record
from bookbinder.publishing.shapes import with_whole_shapes
from bookbinder.publishing.sizes import with_sizes
from bookbinder.publishing.trimming import trim
from bookbinder.publishing.twins import TWIN, twin, written_out
from bookbinder.writing import write_whole

__all__ = ["PDF", "publish"]

INDEX = "llms.txt"
PDF = "tested-transformer-book.pdf"


def publish(
    site: Path,
    root: Path,
    home: Addresses | None = None,
    *,
    archive: bool = False,
    pdf: bool = False,
) -> None:
    """Write twins, notebooks, feet and the rest into a site that was just built.

    Args:
        site: The folder of the site.
        root: The repository that it was built from.
        home: Where the book lives; as the environment says, unless it is given.
        archive: Whether to put the whole into an archive, too.
        pdf: Whether to print the whole, too, which wants Chromium.

    Raises:
        SiteError: If the site is not that of these pages.
    """
    home = home or Addresses.from_environment(os.environ)
    book = load_book(root)
    standing_on = foundations(root)
    records = {
        leaf.source: fresh_record(root, leaf.page, standing_on) for leaf in book.leaves
    }
    parts = {leaf.source: list(passages(leaf.page, root)) for leaf in book.leaves}
    pages = {
        leaf.source: _page(leaf, book, site, records, home, _whole(leaf, archive, pdf))
        for leaf in book.leaves
    }
    for leaf in book.leaves:
        record = records[leaf.source]
        folder = leaf.file(site).parent
        passed = _filled(leaf, parts[leaf.source], book, records)
        write_whole(folder / TWIN, twin(leaf, passed))
        if leaf.page.blocks:
            # What a run has verified is installed as it was then.
            ref = record.commit if record and not record.changed else ""
            content = notebook(leaf, parts[leaf.source], book, home, root, ref)
            write_whole(folder / NOTEBOOK, content)
        write_whole(leaf.file(site), pages[leaf.source])
    write_whole(site / INDEX, written_out(book, parts, home))
    write_standalone_files(site, root)
    if pdf:
        # It asks for a browser, which not everyone has.
        from bookbinder.publishing.printing import print_book

        write_whole(site / PDF, print_book(site, book))
    trim(site)
    write_headers(site)
    if archive:
        write_archive(site, book.name, book.license)


def _page(
    leaf: Leaf,
    book: Book,
    site: Path,
    records: verified.Records,
    home: Addresses,
    extra: str,
) -> str:
    file = leaf.file(site)
    if not file.is_file():
        raise SiteError(f"{leaf.page.path}: the site has no {file}: build it anew")
    html = file.read_text("utf-8")
    if leaf.source == verified.PAGE:
        place = f"<p>{escape(verified.BEFORE)}</p>"
        if html.count(place) != 1:
            reason = f"wanted once, as a paragraph: {verified.BEFORE}"
            raise SiteError(f"{leaf.page.path}: {reason}")
        html = html.replace(place, place + verified.as_html(book, records))
    record = records[leaf.source]
    html = with_foot(html, leaf, record, foot(leaf, record, home, extra))
    return with_sizes(with_whole_shapes(html))


def _filled(
    leaf: Leaf, parts: list[Passage], book: Book, records: verified.Records
) -> list[Passage]:
    """Give the passages of a page, the table of this build in its place."""
    if leaf.source != verified.PAGE:
        return parts
    filled = f"{verified.BEFORE}\n\n{verified.as_markdown(book, records)}"
    return [
        Passage(p.kind, p.text.replace(verified.BEFORE, filled), p.line) for p in parts
    ]


def _whole(leaf: Leaf, archive: bool, pdf: bool) -> str:
    """Say on the home page how to take the whole book away."""
    if leaf.folder:
        return ""
    links = [f'<a href="{INDEX}">as Markdown</a>']
    if archive:
        links.append(f'<a href="{ARCHIVE}">to read offline</a>')
    if pdf:
        links.append(f'<a href="{PDF}">to print</a>')
    return f"<p>The whole book to take away: {', '.join(links)}.</p>"
