"""Print pages of a built site with Chromium, as a reader's own browser would.

On paper folds are open, and links lead to the site if its address is known.
"""

from collections.abc import Iterator
from pathlib import Path

from bookbinder.browser import chromium, served
from bookbinder.publishing.book import Book

_EDGE = "18mm"
_FOOTER = (
    '<div style="width: 100%; text-align: center; font: 8pt sans-serif; color: #555">'
    '<span class="pageNumber"></span></div>'
)
# Links to places on the page itself stay as they are.
_MADE_FOR_PAPER = """(site) => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const link of document.querySelectorAll("a[href]")) {
    const { origin, pathname, hash } = new URL(link.getAttribute("href"), location);
    const within = pathname === location.pathname && hash;
    if (origin !== location.origin || within) continue;
    if (site) link.setAttribute("href", site + pathname.slice(1) + hash);
    else link.removeAttribute("href");
  }
}"""


def print_book(site: Path, book: Book) -> Iterator[tuple[str, bytes]]:
    """Print the pages with runs; yield the name and the content of each file.

    Raises:
        NoChromiumError: If there is no browser to print them.
    """
    with served(site) as address, chromium() as browser:
        # Without scripts, pages show replacements for what is interactive.
        page = browser.new_context(java_script_enabled=False).new_page()
        for entry in (entry for entry in book.entries if entry.page.blocks):
            page.goto(address + entry.address)
            page.evaluate(_MADE_FOR_PAPER, book.site)
            content = page.pdf(
                format="A4",
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=_FOOTER,
                margin={"top": _EDGE, "bottom": _EDGE, "left": _EDGE, "right": _EDGE},
                outline=True,
                tagged=True,
            )
            yield entry.pdf, content
