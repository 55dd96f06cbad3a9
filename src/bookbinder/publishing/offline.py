"""The whole site as one archive, which reads from a disk as it does from a server.

A browser that opens a file is given a folder where a link names one, so links name the
page in it. Files are sorted and bear one date: the same site makes the same archive.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bookbinder.writing import write_whole

__all__ = ["ARCHIVE", "archive", "from_disk"]

ARCHIVE = "tested-transformer-book.zip"

_TOP = "tested-transformer-book"
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that an archive can name
_HREF = re.compile(
    r'(?P<start><(?:a|link)\b[^>]*?\shref=")(?P<path>(?:\.{1,2}/|[\w-]+/|\.{1,2}(?=["#]))[^"#?]*)'
)
# No browser asks for a font from a disk before it is wanted.
_PRELOAD = re.compile(r'\s*<link\b[^>]*\brel="preload"[^>]*>')
# What the archive is not offered in: itself, and the book to print.
_OFFERS = re.compile(r',? <a href="[\w-]+\.(?:zip|pdf)">[^<]*</a>')
# Made of addresses on a server, or of no use without one.
_LEFT_OUT = ("404.html", "sitemap.xml", "sitemap.xml.gz", "_headers")

_READ_ME = """\
{name}

Open index.html. Everything but two things works from a disk: the search, and the
model that runs in chapter 20, want the pages served. Any static server does:

    python -m http.server --bind 127.0.0.1 8000

and then http://127.0.0.1:8000 in a browser.

{license}
"""


def archive(site: Path, name: str, license: str) -> bytes:
    """Put a finished site into an archive.

    Args:
        site: The folder of the site.
        name: The name of the book.
        license: The terms that it comes under.
    """
    from io import BytesIO

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path, data in [
            *_files(site),
            ("read-me.txt", _READ_ME.format(name=name, license=license).encode()),
        ]:
            entry = zipfile.ZipInfo(f"{_TOP}/{path}", _DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, data)
    return buffer.getvalue()


def _files(site: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(site.rglob("*")):
        path = file.relative_to(site).as_posix()
        if not file.is_file() or path in _LEFT_OUT or path.endswith((".zip", ".pdf")):
            continue
        data = file.read_bytes()
        if file.suffix == ".html":
            data = _OFFERS.sub("", from_disk(data.decode())).encode()
        yield path, data
        if path == "search/search_index.json":
            # The theme asks for this one where it may not read the other.
            yield "search/search_index.js", b"var __index = " + data


def from_disk(html: str) -> str:
    """Make a page of the site one that a browser can open from a disk."""

    def named(link: re.Match[str]) -> str:
        path = link["path"]
        if path.endswith((".", "..")):
            path = f"{path}/"
        return link["start"] + (f"{path}index.html" if path.endswith("/") else path)

    return _HREF.sub(named, _PRELOAD.sub("", html))


def write_archive(site: Path, name: str, license: str) -> None:
    """Put the archive of a site beside its home page."""
    write_whole(site / ARCHIVE, archive(site, name, license))
