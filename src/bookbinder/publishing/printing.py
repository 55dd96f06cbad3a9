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

from bookbinder.browser import chromium, served
from bookbinder.publishing.book import Book, Entry, parts

STYLE = Path(__file__).with_name("print.css")

_ARTICLE = re.compile(r"<article\b[^>]*>(.*)</article>", re.DOTALL)
_STYLESHEETS = re.compile(r'<link rel="stylesheet" href="([^":]+)">')
_USELESS = re.compile(
    r'<!--.*?-->|<a class="headerlink".*?</a>|<script\b.*?</script>', re.DOTALL
)
# Attributes that define an id, and attributes that refer to one.
_NAMED = re.compile(
    r'(\s(?:id|for|name|aria-labelledby|aria-describedby|xlink:href|href)=")([^"]*)"'
)
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
            yield (
                name,
                page.pdf(
                    format="A4",
                    print_background=True,
                    display_header_footer=True,
                    header_template="<span></span>",
                    footer_template=_FOOTER,
                    margin={
                        "top": _EDGE,
                        "bottom": _EDGE,
                        "left": _EDGE,
                        "right": _EDGE,
                    },
                    outline=True,
                    tagged=True,
                ),
            )


def one_document(site: Path, book: Book) -> str:
    """Return the pages of a built site as one HTML document, one folder below it."""
    styles = dict.fromkeys(
        posixpath.normpath(posixpath.join("..", entry.folder, path))
        for entry in book.entries
        for path in _STYLESHEETS.findall(entry.file(site).read_text("utf-8"))
    )
    links = [f'<link rel="stylesheet" href="{path}">' for path in [*styles, STYLE.name]]
    contents: list[str] = []
    for number, entry in enumerate(book.entries):
        if not number or entry.part != book.entries[number - 1].part:
            part = f'<p class="part">{escape(entry.part)}</p>'
            contents.append(part if entry.part else "<hr>" * bool(number))
        contents.append(f'<p><a href="#{entry.name}">{escape(entry.title)}</a></p>')
    articles = "".join(_article(entry, book, site) for entry in book.entries)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(book.name)}</title>{''.join(links)}</head>"
        '<body dir="ltr" data-md-color-scheme="default">'
        f'<nav class="md-typeset contents"><p class="title">{escape(book.name)}</p>'
        f"<p>{escape(book.summary)}</p><p>{escape(book.license)}</p>"
        f'<div class="pages">{"".join(contents)}</div></nav>'
        f"{articles}</body></html>"
    )


def _article(entry: Entry, book: Book, site: Path) -> str:
    """Return a page's article, with ids and links made unique in one document."""
    article = _ARTICLE.search(entry.file(site).read_text("utf-8"))
    inside = _USELESS.sub("", article[1] if article else "")
    names = {other.folder: other.name for other in book.entries}

    def unique(attribute: re.Match[str]) -> str:
        start, value = attribute.groups()
        if "href" not in start:
            value = " ".join(f"{entry.name}--{name}" for name in value.split())
        elif "://" not in value:
            path, mark, fragment = value.partition("#")
            target = posixpath.normpath(posixpath.join(entry.folder, path or "."))
            target = target.removeprefix(".")
            if name := names.get(target):
                value = f"#{name}--{fragment}" if mark else f"#{name}"
            elif book.site:
                # A page in another part, or a file of the site.
                end = "" if not target or posixpath.splitext(target)[1] else "/"
                value = f"{book.site}{target}{end}{mark}{fragment}"
            else:
                return ""
        return f'{start}{value}"'

    inside = _NAMED.sub(unique, inside.replace("<details", "<details open"))
    inside = re.sub(r"url\(#([^)]+)\)", rf"url(#{entry.name}--\1)", inside)
    return (
        f'<article id="{entry.name}" class="md-content__inner md-typeset">'
        f"{inside}</article>"
    )
