"""A Markdown extension that makes headings of rows, where a table has an empty corner.

Such a table has names above its columns and beside its rows, but Markdown can only say
the first. Without the second, a screen reader would read a number and not its row.
"""

from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

__all__ = ["RowHeadingExtension", "makeExtension"]


class _Headings(Treeprocessor):
    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            corner = table.find("thead/tr/th")
            if corner is None or len(corner) or (corner.text or "").strip():
                continue
            for row in table.iterfind("tbody/tr"):
                first = row.find("td")
                if first is not None and (len(first) or (first.text or "").strip()):
                    first.tag = "th"
                    first.set("scope", "row")


class RowHeadingExtension(Extension):
    """Make the first cell of each row a heading, below an empty corner."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register after the inline processor (20) and the marking of cells (5)."""
        md.treeprocessors.register(_Headings(md), "book-row-headings", 4)


def makeExtension(**kwargs: object) -> RowHeadingExtension:
    """Return the extension to Markdown, which looks for this name."""
    return RowHeadingExtension(**kwargs)
