"""Add everything to a built site that readers can take away, in this order."""

import re
from collections.abc import Collection
from pathlib import Path

import markdown

from bookbinder.drawing.live import add_live_files
from bookbinder.publishing.book import Book, Entry, address_of
from bookbinder.publishing.headers import write_headers
from bookbinder.publishing.news import FEED, NEWS, changes, feed
from bookbinder.publishing.notebooks import notebook
from bookbinder.publishing.offline import ARCHIVE, write_archive
from bookbinder.publishing.old_addresses import add_old_addresses
from bookbinder.publishing.pages import CHECKED, footer, offers, with_code_blocks
from bookbinder.publishing.plain_markdown import llms, passages, plain_markdown
from bookbinder.publishing.sharing import CARD, card, head
from bookbinder.publishing.standalone import standalone_files
from bookbinder.writing import write_whole

INDEX = "llms.txt"
# The theme leaves this in each page for what there is of it to take away.
OFFERS = '<span class="offers"></span>'
# At the foot of the home page.
DOWNLOADS = (
    f'<p>The whole book to take away: <a href="{INDEX}">as Markdown</a>, '
    f'<a href="{ARCHIVE}">to read offline</a>.</p>'
)
# On the page about checks, the records of the build replace this paragraph.
PLACE = "The records of this build stand here once the site is published."


def publish(site: Path, root: Path, book: Book, *, pdf: bool = False) -> None:
    """Write Markdown pages, notebooks, feet and the rest into a newly built site.

    Args:
        site: The folder of the site.
        root: The repository that it was built from.
        book: Its pages and addresses.
        pdf: Whether to print pages too, which needs Chromium.

    Raises:
        ValueError: If the site was not built from these pages, or is already finished.
        FileNotFoundError: If a page is missing from the site.
    """
    # Make all pages before writing any, so that an error leaves the site unchanged.
    files = standalone_files(root, book)
    pages = [_page(entry, book, site, files, pdf=pdf) for entry in book.entries]
    for entry, html in zip(book.entries, pages, strict=True):
        passed = list(passages(entry.page, root))
        text = plain_markdown(passed).replace(PLACE, _table(book))
        text += changes(root) if entry.source == NEWS else ""
        write_whole(site / entry.source, text)
        if entry.page.blocks:
            write_whole(site / entry.notebook, notebook(entry, passed, book, root))
        write_whole(entry.file(site), html)
        if book.site:
            write_whole(entry.file(site).with_name(CARD), card(entry, book))
    if book.site:
        write_whole(site / FEED, feed(root, book))
    else:  # without addresses in it
        for name in ("sitemap.xml", "sitemap.xml.gz"):
            (site / name).unlink(missing_ok=True)
    write_whole(site / INDEX, llms(book))
    for name, text in files.items():
        write_whole(site / name, text)
    add_old_addresses(site)
    add_live_files(site)
    if pdf:
        # Printing needs a browser, which not everyone has.
        from bookbinder.publishing.printing import print_book

        for name, content in print_book(site, book):
            write_whole(site / name, content)
    write_headers(site)
    write_archive(site, book)


def _page(
    entry: Entry, book: Book, site: Path, files: Collection[str], *, pdf: bool
) -> str:
    """Return the HTML of a page with all additions."""
    before, end, after = entry.file(site).read_text("utf-8").partition("</article>")
    if entry.source == CHECKED:
        table = markdown.markdown(_table(book), extensions=["tables"])
        table = re.sub(
            r'href="([^"]*\.md)"',
            lambda link: f'href="{entry.up}{address_of(link[1])}"',
            table,
        )
        # In the same frame that the theme gives to every table.
        table = table.replace("<table>", '<div class="table"><table>')
        table = table.replace("</table>", "</table></div>")
        section = f'<section class="published">{table}</section>'
        before = before.replace(f"<p>{PLACE}</p>", section)
    html = with_code_blocks(before, entry, book, files)
    html = html.replace(OFFERS, offers(entry, book, pdf=pdf), 1)
    html = html.replace("</head>", f"{head(entry, book)}</head>", 1)
    foot = footer(entry, book, "" if entry.address else DOWNLOADS)
    return f"{html}{end}{foot}{after}"


def _table(book: Book) -> str:
    """Return the records of a build as Markdown, for the page about checks."""
    fresh = sum(entry.record is not None for entry in book.entries)
    lines = [f"{fresh} of {len(book.entries)} pages are verified in this build."]
    rows = [
        f"| [{entry.title}]({entry.source}) | {record.blocks} | {record.outputs} "
        f"| {record.lines} | {record.date} |"
        for entry in book.entries
        if entry.page.blocks and (record := entry.record)
    ]
    if rows:
        head = "| page | blocks run | outputs compared | source lines | verified |"
        lines += ["", head, "|---|---:|---:|---:|---|", *rows]
    return "\n".join(lines)
