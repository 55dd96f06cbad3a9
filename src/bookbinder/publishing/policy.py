"""Say in the site's headers what its pages may do: run its own files, and nothing else.

Netlify, Cloudflare Pages and others send what ``_headers`` says; the tests serve the
site under the same. The theme writes a few scripts into its pages: each is allowed by
the hash of its text, so that no other can stand in its place.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from bookbinder.writing import write_whole

__all__ = ["HEADERS", "policy", "write_headers"]

HEADERS = "_headers"

_SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style\b([^>]*)>(.*?)</style>", re.DOTALL)
# Zensical's script adds the style of its search to a page that has come.
_ADDED = re.compile(r'\("style",\{\},(\w+)\.toString\(\)\)')
_TYPE = re.compile(r'\btype="?([^"\s>]+)')
# What else is written into a page as a script is data, which no browser runs.
_RUNS = ("", "module", "text/javascript")


def write_headers(site: Path) -> None:
    """Write the headers of a site, when nothing is added to its pages any more.

    Args:
        site: The built site.
    """
    pages, files = (
        [file.read_text("utf-8") for file in sorted(site.glob(kind))]
        for kind in ("**/*.html", "assets/javascripts/*.js")
    )
    lines = [
        "/*",
        f"  Content-Security-Policy: {policy(pages, files)}",
        "  X-Content-Type-Options: nosniff",
        "",
    ]
    write_whole(site / HEADERS, "\n".join(lines))


def policy(pages: Iterable[str], files: Iterable[str] = ()) -> str:
    """Give the strictest policy under which pages do all that they do.

    Args:
        pages: The HTML of each.
        files: The scripts of the theme.
    """
    scripts: set[str] = set()
    styles: set[str] = set()
    for page in pages:
        scripts.update(_hash(text) for text in _inline_scripts(page))
        styles.update(_hash(text) for _, text in _STYLE.findall(page))
    for file in files:
        styles.update(_hash(text) for text in _added_styles(file))
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self'", *sorted(scripts)]),
            " ".join(["style-src 'self'", *sorted(styles)]),
            # KaTeX and the pictures place their parts by such attributes, by the
            # thousand; they can neither act nor ask for anything.
            "style-src-attr 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _inline_scripts(page: str) -> Iterable[str]:
    for attributes, text in _SCRIPT.findall(page):
        kind = _TYPE.search(attributes)
        if not re.search(r"\bsrc=", attributes) and (kind[1] if kind else "") in _RUNS:
            yield text


def _added_styles(script: str) -> Iterable[str]:
    for name in _ADDED.findall(script):
        yield from re.findall(rf"\b{name}='([^'\\]*)'", script)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
