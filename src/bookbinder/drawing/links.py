"""Link the boxes of a diagram, or lines in them, to pages.

A comment of the diagram gives the target, as a Markdown link::

    %% [No peeking](chapters/no-peeking.md)

The text must be that of a box, or of whole lines in one, with single spaces.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from markdown import Markdown

from bookbinder.wayfinding.whereabouts import built_way, current_page

__all__ = ["linked"]

_LINK = re.compile(
    r"^[ \t]*%% \[(?P<text>[^]]+)\]\((?P<file>[^)#\s]*)(?P<part>#[^)\s]+)?\)[ \t]*$",
    re.MULTILINE,
)
_SVG = "http://www.w3.org/2000/svg"
_SHAPES = {f"{{{_SVG}}}{name}" for name in ("rect", "path", "polygon", "circle")}
_TEXT, _LINE = f"{{{_SVG}}}text", f"{{{_SVG}}}tspan"


def linked(svg: str, source: str, md: Markdown) -> str:
    """Return a drawing with the links that its source asks for.

    Raises:
        ValueError: If there is no such box, or no such page.
    """
    links = [*_LINK.finditer(source)]
    if not links:
        return svg
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg)
    # With the role of an image, its parts could not be reached by screen readers.
    root.set("role", "group")
    for link in links:
        _link(root, link["text"], _address(link["file"], link["part"] or "", md))
    return ElementTree.tostring(root, encoding="unicode")


def _address(file: str, part: str, md: Markdown) -> str:
    page = current_page(md)
    if not page or not file:
        return f"{file}{part}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
    if not Path("docs", target).is_file():
        raise ValueError(f"leads to {file}, and there is no such page")
    return built_way(md, page, target) + part


def _link(root: Element, text: str, address: str) -> None:
    above = {child: parent for parent in root.iter() for child in parent}
    for label in root.iter(_TEXT):
        lines = label.findall(_LINE)
        for start, stop in _runs(len(lines)):
            if _words(lines[start:stop]) != text:
                continue
            if stop - start < len(lines):
                _wrap(label, lines[start:stop], address)
                return
            box = above[label]
            while not any(child.tag in _SHAPES for child in box):
                if box not in above:
                    raise ValueError(f"has “{text}”, but in no box")
                box = above[box]
            _wrap(box, [*box], address)
            return
    raise ValueError(f"has no box or line “{text}” to make a link of")


def _runs(count: int) -> Iterator[tuple[int, int]]:
    """Return every run of lines, the longest first: a box before a line in it."""
    for size in range(count, 0, -1):
        for start in range(count - size + 1):
            yield start, start + size


def _words(lines: list[Element]) -> str:
    return " ".join(" ".join("".join(line.itertext()) for line in lines).split())


def _wrap(parent: Element, children: list[Element], address: str) -> None:
    link = Element(f"{{{_SVG}}}a", {"href": address})
    parent.insert([*parent].index(children[0]), link)
    for child in children:
        parent.remove(child)
        link.append(child)
