"""A Markdown extension that leads from a chapter to the reference.

The first time that a section names in backticks what its page lists or imports from
the library, the name becomes a link to its entry; so does the title of each listing.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

from bookbinder.wayfinding.appearances import Appearances, appearances_in, module_of
from bookbinder.wayfinding.whereabouts import current_page, raw_way, way

_SECTION = {"h1", "h2"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_TITLE = re.compile(
    r'<span class="filename">(?P<path>src/tested_transformer/[\w/]+\.py)</span>'
)


def _page_of(module: str) -> str:
    return f"reference/{module}.md"


class _Source(Preprocessor):
    """Reads the page before anything is put into it."""

    shown: Appearances | None = None

    def run(self, lines: list[str]) -> list[str]:
        page = current_page(self.md)
        inside = page is not None and not page.startswith("reference/")
        self.shown = appearances_in("\n".join(lines), Path.cwd()) if inside else None
        return lines


class _Names(Treeprocessor):
    """Links names in backticks."""

    def __init__(self, md: Markdown, source: _Source) -> None:
        super().__init__(md)
        self.source = source
        self.seen: set[str] = set()

    def run(self, root: ElementTree.Element) -> None:
        page, shown = current_page(self.md), self.source.shown
        if page is None or shown is None:
            return
        known = sorted({*shown.listed, *shown.used})
        names = {full.rpartition(".")[2]: full for full in known}
        self.seen.clear()
        for parent, index, code in [*self._first_uses(root, names)]:
            full = names[_called(code)]
            target = way(page, _page_of(full.split(".")[1]))
            link = ElementTree.Element("a", {"class": "name"})
            link.set("href", f"{target}#{full}")
            link.tail, code.tail = code.tail, None
            parent[index] = link
            link.append(code)

    def _first_uses(
        self, element: ElementTree.Element, names: dict[str, str]
    ) -> Iterator[tuple[ElementTree.Element, int, ElementTree.Element]]:
        for index, child in enumerate(element):
            if child.tag in _SECTION:
                self.seen.clear()
            if child.tag == "a" or child.tag in _HEADINGS:
                continue
            name = _called(child) if child.tag == "code" else ""
            if name in names and name not in self.seen:
                self.seen.add(name)
                yield element, index, child
            else:
                yield from self._first_uses(child, names)


def _called(code: ElementTree.Element) -> str:
    """Give the name in a code span, alone or with its call."""
    return (code.text or "").partition("(")[0]


class _Titles(Postprocessor):
    """Links the titles of listings, which are finished HTML by now."""

    def __init__(self, md: Markdown, source: _Source) -> None:
        super().__init__(md)
        self.source = source

    def run(self, text: str) -> str:
        page, shown = current_page(self.md), self.source.shown
        if page is None or shown is None:
            return text
        listings = iter(shown.listings)

        def linked(title: re.Match[str]) -> str:
            module = module_of(title["path"])
            if not module:
                return title[0]
            anchor = "".join(f"#{name}" for name in next(listings)[:1])
            target = raw_way(self.md, page, _page_of(module)) + anchor
            path = title["path"].replace("/", "/<wbr>")  # where a line may end
            return f'<span class="filename"><a href="{target}">{path}</a></span>'

        return _TITLE.sub(linked, text)


class ReferenceExtension(Extension):
    """Lead from chapters to the reference."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register before includes (32), behind inline code, before links (0)."""
        source = _Source(md)
        md.preprocessors.register(source, "book-source", 100)
        md.treeprocessors.register(_Names(md, source), "book-names", 11)
        md.postprocessors.register(_Titles(md, source), "book-titles", 5)


def makeExtension(**kwargs: object) -> ReferenceExtension:
    """Give the extension to Markdown, which looks for this name."""
    return ReferenceExtension(**kwargs)
