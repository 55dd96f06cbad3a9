"""Write the site's headers, which allow its pages to run only the site's own files.

Netlify, Cloudflare Pages and others send the headers in ``_headers``; the tests serve
the site with them too. The theme writes a few scripts into its pages. Each of them is
allowed by the hash of its text, so that it cannot be replaced.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from bs4 import BeautifulSoup

from bookbinder.writing import write_whole

__all__ = ["HEADERS", "policy", "write_headers"]

HEADERS = "_headers"

# KaTeX and the pictures position their parts by thousands of style attributes, which
# can neither run code nor load anything.
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# Find scripts by their tags and parse only these, because parsing a whole page is slow.
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
# Other script elements in a page are data, which no browser runs.
_RUNS = (None, "", "module", "text/javascript")


def write_headers(site: Path) -> None:
    """Write the headers of a site, after its pages are finished."""
    pages = (file.read_text("utf-8") for file in site.rglob("*.html"))
    # Zensical, whose search index has this name, adds a style for its search by script.
    adds_style = (site / "search.json").exists()
    lines = [
        "/*",
        f"  Content-Security-Policy: {policy(pages, adds_style=adds_style)}",
        "  X-Content-Type-Options: nosniff",
        "",
    ]
    write_whole(site / HEADERS, "\n".join(lines))


def policy(pages: Iterable[str], *, adds_style: bool = False) -> str:
    """Return the strictest content security policy under which the pages work.

    Args:
        pages: The HTML of each.
        adds_style: Whether a script of the theme adds a style to its pages.
    """
    written = {script for page in pages for script in _SCRIPT.findall(page)}
    hashes = {
        b64encode(sha256(tag.get_text().encode()).digest()).decode()
        for tag in BeautifulSoup("".join(written), "html.parser").find_all("script")
        if not tag.has_attr("src") and tag.get("type") in _RUNS
    }
    return _POLICY.format(
        scripts="".join(f" 'sha256-{found}'" for found in sorted(hashes)),
        styles=" 'unsafe-inline'" if adds_style else "",
    )
