"""A Markdown extension that marks where lines may break, beyond what CSS can tell.

Short code, such as a shape or an option, stays on one line; long code may break, and
does so between the parts of a name where it can. A tuple of few short terms in prose
stays together, and so does a bracket with the formula after it. Browsers may make a
table cell as narrow as its longest word, so cells of prose are marked too: the site's
style keeps them wide enough to read, and lets the table scroll.
"""

import re
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

# Fewer words always fit on two lines; more letters fill a line on a phone.
_WORDS, _LETTERS = 6, 26
_WORD = re.compile(r"(?<!\x02)\b[^\W\d_]{2,}\b(?!\x03)")

_PART = re.compile(r"(?<=\w[._/(])(?=\w)")
_TUPLE = re.compile(r"[(\[]-?[\w.*]{1,6}(?:, -?[\w.*]{1,6}){1,4}[)\]]")


class _Lines(Treeprocessor):
    def run(self, root: Element) -> None:
        for code in root.iter("code"):
            if len(code.text or "") > _LETTERS:
                code.set("class", "long")
                _let_break(code)
        for element in root.iter():
            if element.tag not in ("code", "var"):
                element.text = _held_together(element.text)
            element.tail = _held_together(element.tail)
            _hold_brackets(element)
        for cell in root.iter("td"):
            own = [cell.text or ""]
            for child in cell:
                if child.tag not in ("code", "var"):
                    own += child.itertext()
                own.append(child.tail or "")
            if len(_WORD.findall(" ".join(own))) >= _WORDS:
                cell.set("class", "prose")


def _let_break(code: Element) -> None:
    first, *parts = _PART.split(code.text or "")
    code.text = AtomicString(first)
    for part in parts:
        SubElement(code, "wbr").tail = AtomicString(part)


def _held_together(text: str | None) -> str | None:
    if not text or isinstance(text, AtomicString):
        return text
    return _TUPLE.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


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


class LineExtension(Extension):
    """Mark long code, and cells of prose."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register after the inline processor (20) and extensions that add links."""
        md.treeprocessors.register(_Lines(md), "book-lines", 5)


def makeExtension(**kwargs: object) -> LineExtension:
    """Return the extension to Markdown, which looks for this name."""
    return LineExtension(**kwargs)
