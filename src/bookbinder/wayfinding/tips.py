"""A Markdown extension that lets a reader look a term up where it stands.

The first time that a section uses a term of the glossary, in a paragraph or a list, the
term becomes a link to its entry, and its title says what it means: the theme shows
that as a tip, to the pointer and to the keyboard, and a touch follows the link. There
are none in code, headings and links, and none on the pages that explain the term.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

from bookbinder.wayfinding.glossary import GLOSSARY, Term, terms_of
from bookbinder.wayfinding.whereabouts import current_page, way

_SECTION = {"h1", "h2"}
_PROSE = {"p", "li", "dd"}
# What introduces a term in bold print says itself what it means.
_LEFT_OUT = {"a", "code", "pre", "strong", "var", "h1", "h2", "h3", "h4", "h5", "h6"}


class TipTreeprocessor(Treeprocessor):
    """Link the terms of one page."""

    def run(self, root: ElementTree.Element) -> None:
        """Go through the page in its order, if it is a page of the site."""
        page = current_page(self.md)
        if page is None or page == GLOSSARY or page.startswith("reference/"):
            return
        terms = [
            term
            for term in terms_of(Path("docs"))
            if page.rpartition("/")[2] not in {_file(path) for path in term.explained}
        ]
        if terms:
            _Marking(terms, way(page, GLOSSARY)).walk(root, prose=False)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


class _Marking:
    """The state of one pass over a page: which terms the section has had."""

    def __init__(self, terms: list[Term], glossary: str) -> None:
        self.by_form = {form: term for term in terms for form in _forms(term.name)}
        longest = sorted(self.by_form, key=len, reverse=True)
        words = "|".join(map(re.escape, longest))
        self.pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
        self.glossary = glossary
        self.seen: set[Term] = set()

    def walk(self, element: ElementTree.Element, *, prose: bool) -> None:
        if element.tag in _SECTION:
            self.seen.clear()
        if element.tag in _LEFT_OUT:
            return
        prose = prose or element.tag in _PROSE
        if prose:
            element.text = self._split(element, 0, element.text)
        for child in list(element):
            self.walk(child, prose=prose)
            if prose:
                place = list(element).index(child) + 1
                child.tail = self._split(element, place, child.tail)

    def _split(
        self, parent: ElementTree.Element, place: int, text: str | None
    ) -> str | None:
        """Put links into a text; give what stands before the first of them."""
        before: str | None = text
        last: ElementTree.Element | None = None
        start = 0
        for found, term in self._first_uses(text or ""):
            piece = (text or "")[start : found.start()]
            if last is None:
                before = piece
            else:
                last.tail = piece
            last = ElementTree.Element("a", {"class": "term"})
            last.set("href", f"{self.glossary}#{term.anchor}")
            last.set("title", term.tip)
            last.text = found[0]
            parent.insert(place, last)
            place, start = place + 1, found.end()
        if last is not None:
            last.tail = (text or "")[start:]
        return before

    def _first_uses(self, text: str) -> Iterator[tuple[re.Match[str], Term]]:
        for found in self.pattern.finditer(text):
            term = self.by_form[found[0].lower()]
            if term not in self.seen:
                self.seen.add(term)
                yield found, term


def _forms(name: str) -> Iterator[str]:
    """Give a term in one and in many."""
    name = name.lower()
    yield name
    if name.endswith("y"):
        yield f"{name[:-1]}ies"
    elif not name.endswith("s"):
        yield f"{name}s"


class TipExtension(Extension):
    """Link terms to the glossary."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind formulas and figures, before MkDocs turns links (0)."""
        md.treeprocessors.register(TipTreeprocessor(md), "book-tips", 12)


def makeExtension(**kwargs: object) -> TipExtension:
    """Give the extension to Markdown, which looks for this name."""
    return TipExtension(**kwargs)
