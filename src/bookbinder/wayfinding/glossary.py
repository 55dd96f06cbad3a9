"""A Markdown extension that links terms to the glossary.

The first use of a glossary term in a section, in a paragraph or a list, becomes a link
to its entry, with the first sentence of the entry as its title. The theme shows the
title as a tip for pointer and keyboard; a touch follows the link. (An ``<abbr>`` would
work for neither keyboard nor touch.) Pages that explain a term do not link it, and
everyday words listed in the front matter of the glossary are not linked.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.utils import meta
from pymdownx.slugs import slugify

from bookbinder.wayfinding.whereabouts import current_page, way

__all__ = ["GLOSSARY", "Term", "read_glossary"]

GLOSSARY = "glossary.md"

_ENTRY = re.compile(r"^## (?P<name>.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?:[^)\s#]*/)?(?P<file>[^)\s#/]*)")
# Drop a link to the chapter after a colon, since the tip links to the entry. A sentence
# ends at a full stop before a capital, which no term or formula contains.
_SENTENCE = re.compile(
    r"(?P<first>.+?)(?<!vs)(?::? \[[^]]*\]\([^)]*\))?\.(?= [A-Z\[]|$)"
)
# Plain text for commands in formulas. The glossary needs no others.
_PLAIN = {
    r"[`*$]": "",
    r"\\text\{(\w+)\}": r"\1",
    r"\\sqrt\s*\{?(\w+)\}?": r"√\1",
    r"\\infty": "∞",
    r"(?<![\w)])-(?=[\d∞])": "−",
    r"[{}]": "",
}
# Text that introduces a term in bold explains it.
_LEFT_OUT = {"a", "code", "pre", "strong", "summary", "var"}
_LEFT_OUT |= {"h1", "h2", "h3", "h4", "h5", "h6"}


@dataclass(frozen=True)
class Term:
    """A term: its tip, the anchor of its entry, and the pages that explain it."""

    name: str
    tip: str
    anchor: str
    pages: frozenset[str]

    @property
    def forms(self) -> list[str]:
        """The singular and the plural of the term."""
        name = self.name.lower()
        many = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
        return [name] if name.endswith("s") else [name, many]


def read_glossary(text: str) -> list[Term]:
    """Return the terms of a glossary that get tips.

    Raises:
        ValueError: If the first sentence of an entry cannot be shown as plain text.
    """
    text, front = meta.get_data(text)
    _, *parts = _ENTRY.split(text)
    slug = slugify(case="lower")
    return [
        Term(name, _tip(name, body), slug(name, "-"), frozenset(_LINK.findall(body)))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
        if name not in front.get("everyday", ())
    ]


def _tip(name: str, body: str) -> str:
    """Return the first sentence of an entry, without markup."""
    found = _SENTENCE.match(" ".join(body.split()))
    plain = found["first"] if found else "]("
    for pattern, instead in _PLAIN.items():
        plain = re.sub(pattern, instead, plain)
    if re.search(r"\]\(|\\", plain):
        raise ValueError(f"{name}: no tip can show the first sentence of its entry")
    return f"{plain}."


class _Terms(Treeprocessor):
    """Link the terms of one page."""

    def run(self, root: Element) -> None:
        page, file = current_page(self.md), Path("docs", GLOSSARY)
        if page in ("", GLOSSARY) or page.startswith("reference/") or not file.exists():
            return
        here = page.rpartition("/")[2]
        terms = [
            t for t in read_glossary(file.read_text("utf-8")) if here not in t.pages
        ]
        self.terms = {form: term for term in terms for form in term.forms}
        words = "|".join(map(re.escape, sorted(self.terms, key=len, reverse=True)))
        self.pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
        self.glossary = way(page, GLOSSARY)
        self.seen: set[Term] = set()
        if terms:
            self._walk(root, prose=False)

    def _walk(self, element: Element, *, prose: bool) -> None:
        if element.tag in ("h1", "h2"):
            self.seen.clear()
        if element.tag in _LEFT_OUT:
            return
        prose = prose or element.tag in ("p", "li", "dd")
        children = list(element)
        element[:] = []
        if prose:
            self._link(element, None)
        for child in children:
            self._walk(child, prose=prose)
            element.append(child)
            if prose:
                self._link(element, child)

    def _link(self, parent: Element, last: Element | None) -> None:
        """Link the terms in the text after an element, or at its parent's start."""
        text, start = (parent.text if last is None else last.tail) or "", 0
        for found in self.pattern.finditer(text):
            term = self.terms[found[0].lower()]
            if term not in self.seen:
                self.seen.add(term)
                _say(parent, last, text[start : found.start()])
                target = f"{self.glossary}#{term.anchor}"
                last = SubElement(parent, "a", {"class": "term", "href": target})
                last.set("title", term.tip)
                last.text, start = found[0], found.end()
        _say(parent, last, text[start:])


def _say(parent: Element, last: Element | None, text: str) -> None:
    if last is None:
        parent.text = text
    else:
        last.tail = text


class TermExtension(Extension):
    """Link terms to the glossary."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind formulas and figures, before MkDocs turns links (0)."""
        md.treeprocessors.register(_Terms(md), "book-terms", 12)


def makeExtension(**kwargs: object) -> TermExtension:
    """Return the extension to Markdown, which looks for this name."""
    return TermExtension(**kwargs)
