r"""A Markdown extension for tables: headings of rows, and bars in code.

A table with an empty corner has names above its columns and beside its rows, but
Markdown can only say the first. Without the second, a screen reader would read a number
and not its row.

A bar in code, ``a\|b``, is escaped in a table, as GitHub and the linter want it. Python
Markdown would show the backslash.
"""

from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

__all__ = ["TableExtension", "makeExtension"]


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


class _Bars(Treeprocessor):
    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            for code in table.iter("code"):
                code.text = (code.text or "").replace(r"\|", "|")


class TableExtension(Extension):
    """Make the first cell of a row a heading below an empty corner, and show bars."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register after the inline processor (20), bars before long code is cut (5).

        Headings come last, after the marking of cells.
        """
        md.treeprocessors.register(_Headings(md), "book-row-headings", 4)
        md.treeprocessors.register(_Bars(md), "book-bars", 6)


def makeExtension(**kwargs: object) -> TableExtension:
    """Return the extension to Markdown, which looks for this name."""
    return TableExtension(**kwargs)
