r"""Tell what CSS cannot: where lines break, and which cells are headings of rows.

Short code, such as a shape or an option, stays on one line; long code may break, and
does so between the parts of a name where it can. A tuple of few short terms stays
together, and a bracket with the formula after it. Browsers may make a table cell as
narrow as its longest word, so cells of prose are marked: the site's style keeps them
wide enough to read, and lets the table scroll.

A table with an empty corner has names above its columns and beside its rows. Markdown
can only say the first, and a screen reader would read a number and not its row. A bar
in code, ``a\|b``, is escaped in a table; Python Markdown would show the backslash.
"""

import re
from xml.etree.ElementTree import Element, SubElement

from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

# Fewer words always fit on two lines; more letters fill a line on a phone.
_WORDS, _LETTERS = 6, 26
_WORD = re.compile(r"(?<!\x02)\b[^\W\d_]{2,}\b(?!\x03)")
_TUPLE = re.compile(r"[(\[]-?[\w.*]{1,6}(?:, -?[\w.*]{1,6}){1,4}[)\]]")
_PART = re.compile(r"(?<=\w[._/(])(?=\w)")


class TypesettingTreeprocessor(Treeprocessor):
    """Mark long code, cells of prose and headings of rows."""

    def run(self, root: Element) -> None:
        """Set the code, the brackets and the tables of a page."""
        for code in root.iterfind(".//table//code"):
            code.text = AtomicString((code.text or "").replace(r"\|", "|"))
        for code in root.iter("code"):
            if len(code.text or "") > _LETTERS:
                code.set("class", "long")
                first, *parts = _PART.split(code.text or "")
                code.text = AtomicString(first)
                for part in parts:
                    SubElement(code, "wbr").tail = AtomicString(part)
        for element in root.iter():
            if element.tag not in ("code", "var"):
                element.text = _held_together(element.text)
            element.tail = _held_together(element.tail)
            _hold_brackets(element)
        for cell in root.iter("td"):
            formal = (child for child in cell if child.tag in ("code", "var"))
            left_out = sum(len(_WORD.findall(" ".join(c.itertext()))) for c in formal)
            if len(_WORD.findall(" ".join(cell.itertext()))) - left_out >= _WORDS:
                cell.set("class", "prose")
        for table in root.iter("table"):
            corner = table.find("thead/tr/th")
            if corner is not None and not "".join(corner.itertext()).strip():
                for first in table.findall("tbody/tr/td[1]"):
                    if "".join(first.itertext()).strip():
                        first.tag = "th"
                        first.set("scope", "row")


def _held_together(text: str | None) -> str | None:
    if not text or isinstance(text, AtomicString):
        return text
    return _TUPLE.sub(lambda few: few[0].replace(" ", "\u00a0"), text)


def _hold_brackets(parent: Element) -> None:
    """Move a bracket before a formula into its element, in which no line breaks."""
    before: Element | None = None
    for child in parent:
        text = (parent.text if before is None else before.tail) or ""
        if child.tag == "var" and text.endswith(("(", "[")):
            child.text = text[-1] + (child.text or "")
            if before is None:
                parent.text = text[:-1]
            else:
                before.tail = text[:-1]
        before = child
