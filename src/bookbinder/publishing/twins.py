"""Each page once more as plain Markdown, and one file that leads to them all."""

import posixpath
import re

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import Book, Leaf, folder_of
from bookbinder.publishing.passages import Passage, linked

__all__ = ["TWIN", "place_in_site", "summary_of", "twin", "written_out"]

TWIN = "index.md"

_ROW = re.compile(r"^\| \[[^\]]*\]\((?P<source>[^)]+)\) \| (?P<about>.+?) \|$")
_SENTENCE = re.compile(r".*?[.?!](?=\s|$)", re.DOTALL)


def twin(leaf: Leaf, parts: list[Passage]) -> str:
    """Write a page as Markdown that stands beside it in the site.

    Its links lead to the other pages' Markdown.
    """

    def address(target: str) -> str:
        place, _, fragment = target.partition("#")
        if not place or "://" in target:
            return target
        where = place_in_site(leaf, place)
        where = f"{where}{TWIN}" if where.endswith("/") or not where else where
        path = posixpath.relpath(where, leaf.folder or ".")
        return f"{path}#{fragment}" if fragment else path

    pieces = [
        linked(part.markdown(), address) if part.kind == "prose" else part.markdown()
        for part in parts
    ]
    return "\n\n".join(pieces) + "\n"


def place_in_site(leaf: Leaf, path: str) -> str:
    """Give where in the site a relative path leads that a page's file has.

    Pages become folders, with a slash behind them: only the home page has none.
    """
    source = posixpath.normpath(posixpath.join(posixpath.dirname(leaf.source), path))
    if not source.endswith(".md"):
        return source
    folder = folder_of(source)
    return f"{folder}/" if folder else ""


def written_out(book: Book, parts: dict[str, list[Passage]], home: Addresses) -> str:
    """Write ``llms.txt``: what the book is, and where each page is as Markdown.

    Args:
        book: The book.
        parts: The passages of each page, by the page's file.
        home: Where the book lives.
    """
    sections: dict[str, list[str]] = {}
    questions = _questions(book)
    for leaf in book.leaves:
        path = f"{leaf.folder}/{TWIN}".lstrip("/")
        about = questions.get(leaf.source) or summary_of(parts[leaf.source])
        line = f"- [{leaf.title}]({home.site}{path})" + (f": {about}" if about else "")
        sections.setdefault(leaf.part, []).append(line)
    beside = sections.pop("", [])
    text = [f"# {book.name}", "", f"> {book.summary}", ""]
    text += [
        "Every link leads to a page as Markdown, its listings written out. Each block"
        " of Python has run, and the text block behind it is what it printed.",
        "",
        book.license,
    ]
    for title, lines in [*sections.items(), ("Beside the chapters", beside)]:
        if lines:
            text += ["", f"## {title}", "", *lines]
    return "\n".join(text) + "\n"


def _questions(book: Book) -> dict[str, str]:
    """Give what the home page says of each page that it has in a table."""
    home = next(leaf for leaf in book.leaves if not leaf.folder)
    found = (_ROW.match(line) for line in home.page.lines)
    return {row["source"]: row["about"] for row in found if row}


def summary_of(parts: list[Passage]) -> str:
    """Give the first sentence of a page, which says what it is about."""
    for part in parts:
        if part.kind != "prose":
            continue
        for paragraph in part.text.split("\n\n"):
            if paragraph[:1].isalpha() or paragraph[:1] == "*":
                words = linked(" ".join(paragraph.split()), lambda target: "")
                found = _SENTENCE.match(words)
                return found[0] if found else words
    return ""
