"""Write the site's headers, which allow its pages to run only the site's own files.

Netlify, Cloudflare Pages and others send the headers in ``_headers``; the tests serve
the site with them too. The theme writes a few scripts into its pages. Each of them is
allowed by the hash of its text, so that it cannot be replaced.
"""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from bs4 import BeautifulSoup

from bookbinder.writing import write_whole

# KaTeX and the pictures position their parts by thousands of style attributes, which
# can neither run code nor load anything.
_HEADERS = """\
/*
  Content-Security-Policy: default-src 'none'; script-src 'self'{scripts}; style-src \
'self'{styles}; style-src-attr 'unsafe-inline'; img-src 'self' data:; font-src 'self'; \
connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
frame-ancestors 'none'
  X-Content-Type-Options: nosniff
"""
# Find scripts by their tags and parse only these, because parsing a whole page is slow.
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
# Other script elements in a page are data, which no browser runs.
_RUNS = (None, "", "module", "text/javascript")


def write_headers(site: Path) -> None:
    """Write the strictest headers under which the finished pages of a site work."""
    pages = (file.read_text("utf-8") for file in site.rglob("*.html"))
    tags = "".join({tag for page in pages for tag in _SCRIPT.findall(page)})
    hashes = {
        b64encode(sha256(tag.get_text().encode()).digest()).decode()
        for tag in BeautifulSoup(tags, "html.parser").find_all("script")
        if not tag.has_attr("src") and tag.get("type") in _RUNS
    }
    scripts = "".join(f" 'sha256-{digest}'" for digest in sorted(hashes))
    # Zensical, whose search index has this name, adds a style for its search by script.
    styles = " 'unsafe-inline'" if (site / "search.json").exists() else ""
    write_whole(site / "_headers", _HEADERS.format(scripts=scripts, styles=styles))
