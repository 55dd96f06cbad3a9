"""What is new: the changelog as a page of the book, and as a feed to subscribe to."""

import re
from hashlib import sha256
from pathlib import Path
from xml.etree.ElementTree import (
    Element,
    SubElement,
    indent,
    register_namespace,
    tostring,
)

import markdown

from bookbinder.publishing.book import Book, address_of

# The page that shows the changelog, and the feed's place in the site.
NEWS, FEED = "whats-new.md", "whats-new.xml"

# RSS has no way to say where a feed lies, and borrows this one.
_ATOM = "http://www.w3.org/2005/Atom"
register_namespace("atom", _ATOM)
_CHANGE = re.compile(r"^- (.*(?:\n(?:  .*)?)*)", re.MULTILINE)


def changes(root: Path) -> str:
    """Return the versions of the changelog as Markdown, without what precedes them."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    return text[text.index("\n## ") :]


def feed(root: Path, book: Book) -> str:
    """Return the changes of the newest version as RSS, for a book with an address.

    RSS asks for no dates, and the changelog has none.
    """
    rss = Element("rss", version="2.0")
    channel = SubElement(rss, "channel")
    page = book.site + address_of(NEWS)
    about = {"title": f"{book.name}: what is new", "link": page}
    about |= {"description": book.summary, "language": "en"}
    _tell(channel, about)
    itself = {"href": f"{book.site}{FEED}", "type": "application/rss+xml"}
    SubElement(channel, f"{{{_ATOM}}}link", itself, rel="self")
    newest = changes(root).split("\n## ")[1]
    for change in _CHANGE.findall(newest):
        text = " ".join(change.split())
        item = SubElement(channel, "item")
        title = text.replace("`", "").removesuffix(".")
        title = title.partition(". ")[0].partition(": ")[0]
        html = markdown.markdown(text)
        _tell(item, {"title": title, "link": page, "description": html})
        guid = SubElement(item, "guid", isPermaLink="false")
        guid.text = sha256(text.encode()).hexdigest()
    indent(rss)
    return tostring(rss, "unicode", xml_declaration=True) + "\n"


def _tell(parent: Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text
