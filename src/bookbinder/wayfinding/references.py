"""Link chapters to the reference.

If a page lists or imports a name of the library, the first mention of the name in
backticks in each section becomes a link to its entry. So does the title of each
listing.
"""

import re
from pathlib import Path
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.postprocessors import Postprocessor
from markdown.treeprocessors import Treeprocessor

from bookbinder.wayfinding.appearances import (
    Appearances,
    appearances_in,
    reference_page,
)
from bookbinder.wayfinding.whereabouts import built_way, current_page, way

_TITLE = re.compile(r'<span class="filename">(?P<path>src/[\w/]+\.py)</span>')

# A click on the title of a fold opens it, so it cannot be a link.
_NO_LINKS = {"a", "h1", "h2", "h3", "h4", "h5", "h6", "summary"}


class NameTreeprocessor(Treeprocessor):
    """Link names in backticks."""

    shown = Appearances()

    def run(self, root: Element) -> None:
        """Link the first mention of each name in a section."""
        page, self.shown = current_page(self.md), Appearances()
        if page and not page.startswith("reference/"):
            self.shown = appearances_in(page, Path.cwd())
            names = {*self.shown.listed, *self.shown.used}
            known = {name.rpartition(".")[2]: name for name in names}
            self._link(root, known, page, set())

    def _link(
        self, element: Element, known: dict[str, str], page: str, seen: set[str]
    ) -> None:
        for index, child in enumerate(element):
            if child.tag in ("h1", "h2"):
                seen.clear()
            name = (child.text or "").partition("(")[0] if child.tag == "code" else ""
            if name in known and name not in seen:
                seen.add(name)
                module = known[name].rpartition(".")[0]
                target = way(page, reference_page(module, name))
                link = Element(
                    "a", {"class": "name", "href": f"{target}#{known[name]}"}
                )
                link.tail, child.tail = child.tail, None
                link.append(child)
                element[index] = link
            elif child.tag not in _NO_LINKS:
                self._link(child, known, page, seen)


class TitlePostprocessor(Postprocessor):
    """Link the titles of listings, which are already HTML."""

    def __init__(self, md: Markdown, names: NameTreeprocessor) -> None:
        super().__init__(md)
        self.names = names

    def run(self, text: str) -> str:
        """Link the title of each listing."""
        page = current_page(self.md)
        listings = iter(self.names.shown.listings)

        def linked(title: re.Match[str]) -> str:
            module, name = next(listings, ("", ""))
            if not page or not module:
                return title[0]
            target = built_way(
                self.md, page, reference_page(module, name.rpartition(".")[2])
            )
            target += f"#{name}" if name else ""
            path = title["path"].replace("/", "/<wbr>")  # where a line may break
            return f'<span class="filename"><a href="{target}">{path}</a></span>'

        return _TITLE.sub(linked, text)
