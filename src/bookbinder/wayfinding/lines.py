"""A Markdown extension that says what a line may end in: prose, and long code.

A browser may set a cell as narrow as its longest word, and on a phone it does. The
style of the site keeps cells of prose wide enough to be read, and the table scrolls;
columns of names and numbers stay as narrow as they are. And a shape, an option or a
short call stays in one line, which a browser would end behind any space or hyphen; a
name that fits into none may end one behind a dot or an underscore, a path behind a
slash.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

__all__ = ["LineExtension", "LineTreeprocessor", "makeExtension"]

PROSE, LONG = "prose", "long"

# Fewer stand in two lines, of whatever width.
_FEWEST = 6
# Of a phone's line, nearly all.
_MOST = 26
_WORD = re.compile(r"[^\W\d_]{2,}")
_WITH_SPACE = re.compile(r"\S+\s*|\s+")
_OF_A_PATH = re.compile(r"[^/]+/*|/+")
_OF_A_NAME = re.compile(r"^(?:[^._]{,2}[._]+)?[^._]+[._]*|[^._]+[._]*|[._]+")
# Few short terms in brackets, such as a shape.
_TUPLE = re.compile(r"[(\[]-?[\w.*]{1,6}(?:, -?[\w.*]{1,6}){1,4}[)\]]")
# What is said in these is no word; nor is what Markdown puts in the place of HTML.
_LEFT_OUT = {"code", "var"}
_STASHED = re.compile("\x02.*?\x03")


class LineTreeprocessor(Treeprocessor):
    """Mark the cells and the code of one page."""

    def run(self, root: ElementTree.Element) -> None:
        """Mark cells of many words and long code, and hold tuples together."""
        for code in root.iter("code"):
            if len(code.text or "") > _MOST:
                code.set("class", LONG)
                _break_words(code)
        for element in root.iter():
            if element.tag not in _LEFT_OUT:
                element.text = _held_together(element.text)
            element.tail = _held_together(element.tail)
        for cell in root.iter("td"):
            words = _WORD.findall(_STASHED.sub("", " ".join(_texts(cell))))
            if len(words) >= _FEWEST:
                cell.set("class", PROSE)


def _held_together(text: str | None) -> str | None:
    """Let no line end within a tuple of short terms, such as a shape in prose."""
    if text is None or isinstance(text, AtomicString):
        return text
    return _TUPLE.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


def _break_words(code: ElementTree.Element) -> None:
    """Let a name longer than a line end at a dot, an underscore, or a path's slash."""
    text, code.text = code.text or "", AtomicString("")
    for word in _WITH_SPACE.findall(text):
        pieces = _OF_A_PATH if "/" in word else _OF_A_NAME
        first, *others = pieces.findall(word) if len(word) > _MOST else [word]
        if len(code):
            code[-1].tail = AtomicString(f"{code[-1].tail}{first}")
        else:
            code.text = AtomicString(f"{code.text}{first}")
        for other in others:
            ElementTree.SubElement(code, "wbr").tail = AtomicString(other)


def _texts(element: ElementTree.Element) -> Iterator[str]:
    if element.tag not in _LEFT_OUT:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""


class LineExtension(Extension):
    """Mark cells of prose, and long code."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind what is in a line (20) and what links it."""
        md.treeprocessors.register(LineTreeprocessor(md), "book-lines", 5)


def makeExtension(**kwargs: object) -> LineExtension:
    """Give the extension to Markdown, which looks for this name."""
    return LineExtension(**kwargs)
