"""What a page says outside its fences: lines, code spans, formulas, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bookbinder.reading.pages import Page

__all__ = [
    "Formula",
    "Link",
    "Span",
    "formulas",
    "front_matter",
    "links",
    "prose_lines",
    "spans",
]

_SPAN = re.compile(r"(?<!\\)(`+)(?!`)(?P<text>.*?)(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
_BLOCK = re.compile(r"\$\$(?P<tex>.*?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$])\$(?P<tex>[^$\n]+)\$")


@dataclass(frozen=True)
class Span:
    """Something in backticks."""

    text: str
    line: int


@dataclass(frozen=True)
class Link:
    """A link, as it is written: its text may hold code."""

    text: str
    target: str
    line: int


@dataclass(frozen=True)
class Formula:
    """The TeX of a formula, and the line on which it begins."""

    tex: str
    line: int


def front_matter(page: Page) -> int:
    """Count the lines of the front matter, which no reader sees."""
    if page.lines[:1] == ["---"] and "---" in page.lines[1:]:
        return page.lines.index("---", 1) + 1
    return 0


def prose_lines(page: Page) -> Iterator[tuple[int, str]]:
    """Give each line that stands in no fence, is no comment and no front matter."""
    ticks = ""
    begin = front_matter(page)
    for number, line in enumerate(page.lines[begin:], start=begin + 1):
        fence = re.match(r"`{3,}", line)
        if fence and not ticks:
            ticks = fence[0]
        elif ticks:
            ticks = "" if line.strip() == ticks else ticks
        elif not line.startswith("<!--"):
            yield number, line


def spans(page: Page) -> Iterator[Span]:
    """Give every code span of the prose."""
    for number, line in prose_lines(page):
        for found in _SPAN.finditer(line):
            yield Span(found["text"].strip(), number)


def links(page: Page) -> Iterator[Link]:
    """Give every link of the prose."""
    for number, line in prose_lines(page):
        # A span may show Markdown, and is none; its length is kept, and its text.
        bare = _SPAN.sub(lambda span: re.sub(r"[\[\]()]", " ", span[0]), line)
        for found in _LINK.finditer(bare):
            text = line[found.start("text") : found.end("text")]
            yield Link(text, found["target"], number)


def formulas(page: Page) -> Iterator[Formula]:
    """Give every formula, in a line of its own or within one."""
    lines = dict(prose_lines(page))
    text = "\n".join(
        _SPAN.sub(lambda span: " " * len(span[0]), lines.get(number, ""))
        for number in range(1, len(page.lines) + 1)
    )
    for pattern in (_BLOCK, _INLINE):
        for found in pattern.finditer(text):
            yield Formula(found["tex"], text.count("\n", 0, found.start()) + 1)
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
