"""Link terms to the glossary.

The first use of a glossary term in a section, in a paragraph or a list, becomes a link
to its entry, with the first sentence of the entry as its title. The theme shows the
title as a tip for pointer and keyboard; a touch follows the link. (An ``<abbr>``, as
Markdown's own extension makes them, would work for neither keyboard nor touch, at every
use, and in one spelling.) Pages that explain a term do not link it, and everyday words
listed in the front matter of the glossary are not linked.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from markdown.treeprocessors import Treeprocessor
from mkdocs.utils import meta
from pymdownx.slugs import slugify

from bookbinder.wayfinding.whereabouts import current_page, way

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
_PROSE = ("p", "li", "dd")
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


@lru_cache(maxsize=1)  # for all pages
def read_glossary(text: str) -> tuple[Term, ...]:
    """Return the terms of a glossary that get tips.

    Raises:
        ValueError: If the first sentence of an entry cannot be shown as plain text.
    """
    text, front = meta.get_data(text)
    _, *parts = _ENTRY.split(text)
    slug = slugify(case="lower")
    return tuple(
        Term(name, _tip(name, body), slug(name, "-"), frozenset(_LINK.findall(body)))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
        if name not in front.get("everyday", ())
    )


def _tip(name: str, body: str) -> str:
    """Return the first sentence of an entry, without markup."""
    sentence = _SENTENCE.match(" ".join(body.split()))
    plain = sentence["first"] if sentence else "]("
    for pattern, instead in _PLAIN.items():
        plain = re.sub(pattern, instead, plain)
    if re.search(r"\]\(|\\", plain):
        raise ValueError(f"{name}: no tip can show the first sentence of its entry")
    return f"{plain}."


class TermTreeprocessor(Treeprocessor):
    """Link the terms of one page."""

    def run(self, root: Element) -> None:
        """Link the first use of each term in a section."""
        page, file = current_page(self.md), Path("docs", GLOSSARY)
        if page in ("", GLOSSARY) or page.startswith("reference/") or not file.exists():
            return
        name = page.rpartition("/")[2]
        terms = [
            t for t in read_glossary(file.read_text("utf-8")) if name not in t.pages
        ]
        if terms:
            self.terms = {form: term for term in terms for form in term.forms}
            words = sorted(map(re.escape, self.terms), key=len, reverse=True)
            pattern = rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])"
            self.pattern = re.compile(pattern, re.IGNORECASE)
            self.glossary = way(page, GLOSSARY)
            self.seen: set[Term] = set()
            self._walk(root, prose=False)

    def _walk(self, element: Element, *, prose: bool) -> None:
        """Link the terms in an element, in the order of the text."""
        if element.tag in ("h1", "h2"):
            self.seen.clear()
        if element.tag in _LEFT_OUT:
            return
        prose = prose or element.tag in _PROSE
        children = [*element]
        element[:] = []
        element.text = self._linked(element, element.text, prose=prose)
        for child in children:
            self._walk(child, prose=prose)
            element.append(child)
            child.tail = self._linked(element, child.tail, prose=prose)

    def _linked(self, parent: Element, text: str | None, *, prose: bool) -> str | None:
        """Add links for the terms in a text; return the part before the first."""
        link: Element | None = None
        before, start = text, 0
        for use in self.pattern.finditer(text or "") if prose and text else ():
            term = self.terms[use[0].lower()]
            if term in self.seen:
                continue
            self.seen.add(term)
            between = use.string[start : use.start()]
            if link is None:
                before = between
            else:
                link.tail = between
            target = f"{self.glossary}#{term.anchor}"
            link = SubElement(parent, "a", {"class": "term", "href": target})
            link.set("title", term.tip)
            link.text, start = use[0], use.end()
            link.tail = use.string[start:]
        return before
