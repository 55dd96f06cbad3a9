"""Print the book as PDFs with Chromium, one for each part.

The articles of a part are put into one document, each after a page break, with a table
of contents in front. Links between its pages stay within it; links to other parts lead
to the site, if its address is known.
"""

import posixpath
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from bookbinder.browser.chromium import chromium
from bookbinder.browser.serving import served
from bookbinder.publishing.book import Book, Leaf, parts

STYLE = Path(__file__).with_name("print.css")

_ARTICLE = re.compile(r"<article\b[^>]*>(?P<inside>.*)</article>", re.DOTALL)
_STYLESHEETS = re.compile(r'<link rel="stylesheet" href="(?P<path>[^":]+)">')
_USELESS = re.compile(
    r'<!--.*?-->|<a class="headerlink".*?</a>|<script\b.*?</script>', re.DOTALL
)
# Attributes that define an id, and attributes that refer to one.
_NAMED = re.compile(
    r'(?P<start>\s(?:id|for|name|aria-labelledby|aria-describedby|xlink:href|href)=")'
    r'(?P<value>[^"]*)"'
)
_PAINTED = re.compile(r"url\(#(?P<name>[^)]+)\)")

_EDGE = "18mm"
_FOOTER = (
    '<div style="width: 100%; text-align: center; font: 8pt sans-serif; color: #555">'
    '<span class="pageNumber"></span></div>'
)


def print_book(site: Path, book: Book) -> Iterator[tuple[str, bytes]]:
    """Print the parts of a built site; yield the name and the content of each file.

    Raises:
        NoChromiumError: If there is no browser to print it.
    """
    # Next to the site's files, so that its stylesheets and fonts are found.
    with (
        TemporaryDirectory(dir=site, prefix="print-") as folder,
        served(site) as address,
        chromium() as browser,
    ):
        shutil.copy(STYLE, folder)
        # Turn off scripts: paper is not interactive, and pages show replacements then.
        page = browser.new_context(java_script_enabled=False).new_page()
        for name, part in parts(book).items():
            # A unique address, or the browser could show the previous part again.
            document = Path(folder, name).with_suffix(".html")
            document.write_text(one_document(site, part), "utf-8")
            page.goto(address + document.relative_to(site).as_posix())
            pdf = page.pdf(
                format="A4",
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=_FOOTER,
                margin={"top": _EDGE, "bottom": _EDGE, "left": _EDGE, "right": _EDGE},
                outline=True,
                tagged=True,
            )
            yield name, pdf


def one_document(site: Path, book: Book) -> str:
    """Return the pages of a built site as one HTML document, one folder below it."""
    styles = dict.fromkeys(
        posixpath.normpath(posixpath.join("..", leaf.folder, path))
        for leaf in book.leaves
        for path in _STYLESHEETS.findall(leaf.file(site).read_text("utf-8"))
    )
    links = [f'<link rel="stylesheet" href="{path}">' for path in [*styles, STYLE.name]]
    articles = "".join(_article(leaf, book, site) for leaf in book.leaves)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(book.name)}</title>{''.join(links)}</head>"
        '<body dir="ltr" data-md-color-scheme="default">'
        f"{_contents(book)}{articles}</body></html>"
    )


def _contents(book: Book) -> str:
    """Return the title and the table of contents."""
    lines: list[str] = []
    part = ""
    for leaf in book.leaves:
        if leaf.part != part:
            part = leaf.part
            lines.append(f'<p class="part">{escape(part)}</p>' if part else "<hr>")
        lines.append(f'<p><a href="#{leaf.name}">{escape(leaf.title)}</a></p>')
    return (
        f'<nav class="md-typeset contents"><p class="title">{escape(book.name)}</p>'
        f"<p>{escape(book.summary)}</p><p>{escape(book.license)}</p>"
        f'<div class="pages">{"".join(lines)}</div></nav>'
    )


def _article(leaf: Leaf, book: Book, site: Path) -> str:
    """Return a page's article, with ids and links made unique in one document."""
    found = _ARTICLE.search(leaf.file(site).read_text("utf-8"))
    inside = _USELESS.sub("", found["inside"] if found else "")
    inside = inside.replace("<details", "<details open")
    places = {other.folder: other.name for other in book.leaves}

    def named(found: re.Match[str]) -> str:
        value = found["value"]
        if "href" not in found["start"]:
            value = " ".join(f"{leaf.name}--{name}" for name in value.split())
        elif "://" not in value:
            path, mark, fragment = value.partition("#")
            folder = posixpath.normpath(posixpath.join(leaf.folder, path or "."))
            folder = folder.removeprefix(".")
            if name := places.get(folder):
                value = f"#{name}--{fragment}" if mark else f"#{name}"
            elif book.site:
                # A page in another part, or a file of the site.
                end = "" if not folder or posixpath.splitext(folder)[1] else "/"
                value = f"{book.site}{folder}{end}{mark}{fragment}"
            else:
                return ""
        return f'{found["start"]}{value}"'

    inside = _NAMED.sub(named, inside)
    inside = _PAINTED.sub(rf"url(#{leaf.name}--\g<name>)", inside)
    return (
        f'<article id="{leaf.name}" class="md-content__inner md-typeset">'
        f"{inside}</article>"
    )
