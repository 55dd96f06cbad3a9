"""Pack the whole site into an archive that can be read and searched from a disk.

A link to a folder opens the folder when a site is opened from a disk, so links are
changed to name the page in it. Such a page may load other files only as scripts, so the
search index and the script that reads it become scripts. Files are sorted and have one
date, so that the same site makes the same archive.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bookbinder.publishing.book import Book
from bookbinder.publishing.news import FEED
from bookbinder.publishing.sharing import CARD

ARCHIVE = "tested-transformer-book.zip"

_DATE = (1980, 1, 1, 0, 0, 0)  # the first date that an archive can have
# Links to folders, to the page's own or to those above it, with a slash or without.
_FOLDER = re.compile(
    r'(<(?:a|link)\b[^>]*?\shref=")((?:\.{1,2}/|[\w-]+/)*)(\.{1,2})?(?=["#?])'
)
# From a disk, browsers neither preload fonts nor load modules: a module's replacement
# sentence stays. The archive offers neither itself nor the pages to print.
_USELESS_IN_HEAD = re.compile(r'\s*<link\b[^>]*(?:\brel="preload"|/rss\+xml")[^>]*>')
_USELESS = re.compile(
    r'<script type="module" src=[^>]*></script>'
    r'|, <a href="[\w-]+\.zip">[^<]*</a>|<a href="[^"]+\.pdf">PDF</a>'
)
# How that sentence begins in the site, and what is wanted here besides.
_ALLOWED = '<p class="without">Where scripts are allowed'
_SERVED = '<p class="without">Where a server sends this page and scripts are allowed'
# Files that contain addresses on a server, or are useless without one.
_LEFT_OUT = ("404.html", "sitemap.xml", "sitemap.xml.gz", "_headers", CARD, FEED)

_READ_ME = """\
{book.name}

Open index.html. Everything works from a disk but the model and the widgets, which run
in the page and want it served. Any static server does:

    python -m http.server --bind 127.0.0.1 8000

and then http://127.0.0.1:8000 in a browser.

{book.license}
"""


def write_archive(site: Path, book: Book) -> None:
    """Write a finished site into an archive in the site's folder."""
    read_me = _READ_ME.format(book=book).encode()
    with zipfile.ZipFile(site / ARCHIVE, "w", compresslevel=9) as archive:
        for path, data in [*_files(site), ("read-me.txt", read_me)]:
            entry = zipfile.ZipInfo(f"tested-transformer-book/{path}", _DATE)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def _files(site: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(site.rglob("*")):
        path = file.relative_to(site).as_posix()
        left_out = path in _LEFT_OUT or path.endswith((".zip", ".pdf", f"/{CARD}"))
        if not file.is_file() or left_out:
            continue
        data = file.read_bytes()
        if file.suffix == ".html":
            data = from_disk(data.decode()).encode()
        elif path == "search/search_index.json":
            index = json.loads(data)
            for entry in index["docs"]:
                folder, mark, anchor = entry["location"].partition("#")
                entry["location"] = f"{folder}index.html{mark}{anchor}"
            data = json.dumps(index, ensure_ascii=False).encode()
            # The theme loads this file if it cannot read the other.
            yield "search/search_index.js", b"var __index = " + data
        elif path.startswith("assets/javascripts/workers/") and file.suffix == ".js":
            # docs/assets/js/search-on-demand.js makes a worker of it in a page.
            start = b"\n}\nif (!self.document) __worker();"
            data = b"function __worker() {" + data + start
        yield path, data


def from_disk(html: str) -> str:
    """Return a page of the site in a form that a browser can open from a disk."""

    def named(link: re.Match[str]) -> str:
        start, folders, dots = link.groups()
        if not folders and not dots:
            return link[0]  # a place on the page itself
        return f"{start}{folders}{f'{dots}/' if dots else ''}index.html"

    head, end, body = html.partition("</head>")
    html = _USELESS.sub("", f"{_USELESS_IN_HEAD.sub('', head)}{end}{body}")
    return _FOLDER.sub(named, html.replace(_ALLOWED, _SERVED))
