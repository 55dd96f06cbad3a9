"""Link the boxes of a diagram, or lines in them, to pages.

A comment of the diagram gives the target, as a Markdown link::

    %% [No peeking](chapters/no-peeking.md)

The text must be that of a box, or of whole lines in one, with single spaces.
"""

import posixpath
import re
from itertools import combinations
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from markdown import Markdown

from bookbinder.wayfinding.whereabouts import built_way, current_page

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
        ValueError: If there is no such box.
    """
    links = [*_LINK.finditer(source)]
    if not links:
        return svg
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg)
    # With the role of an image, its parts could not be reached by screen readers.
    root.set("role", "group")
    for link in links:
        address = _address(link["file"], md) + (link["part"] or "")
        _link(root, link["text"], address)
    return ElementTree.tostring(root, encoding="unicode")


def _address(file: str, md: Markdown) -> str:
    page = current_page(md)
    if not page or not file:
        return file
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
    return built_way(md, page, target)


def _link(root: Element, text: str, address: str) -> None:
    parent_of = {child: parent for parent in root.iter() for child in parent}
    for label in root.iter(_TEXT):
        lines = label.findall(_LINE)
        # A box comes before a line in it.
        runs = combinations(range(len(lines) + 1), 2)
        for start, stop in sorted(runs, key=lambda run: run[0] - run[1]):
            words = " ".join("".join(line.itertext()) for line in lines[start:stop])
            if " ".join(words.split()) != text:
                continue
            box, inside = label, lines[start:stop]
            if len(inside) == len(lines):
                while not any(child.tag in _SHAPES for child in box):
                    if box not in parent_of:
                        raise ValueError(f"has “{text}”, but in no box")
                    box = parent_of[box]
                inside = [*box]
            link = Element(f"{{{_SVG}}}a", {"href": address})
            box.insert([*box].index(inside[0]), link)
            for child in inside:
                box.remove(child)
                link.append(child)
            return
    raise ValueError(f"has no box or line “{text}” to make a link of")
