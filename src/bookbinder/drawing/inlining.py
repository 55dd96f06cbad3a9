"""A Markdown extension that puts pictures into the page itself.

A picture behind ``<img>`` cannot see the page's palette and font; inlined, it follows
both. Only the figures that pages draw, under ``assets/figures/``, are inlined.
"""

import math
import re
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

from bookbinder.drawing.palette import recolor
from bookbinder.drawing.svg import unique_ids
from bookbinder.drawing.undrawn import undrawn

_FIGURES = "assets/figures/"
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_POINTS_TO_PIXELS = 4 / 3
_MARGIN = 6.0

# No smaller is a figure than this, and than its smallest letters may be.
_LEAST_SCALE = 0.65
_LEAST_LETTERS = 9.1

# matplotlib leaves the room that its own font needs, which is wider than the page's:
# small letters may be an eighth larger, up to this many points, and the figure smaller.
# The longest word may reach a little further all the same, with letters this wide.
_SMALL = 9.0
_ROOM = 9 / 8
_WIDTH = 0.6

# All that a picture of data is made of: nothing that acts.
_SHAPES = frozenset(
    [
        "svg",
        "g",
        "defs",
        "clipPath",
        "path",
        "rect",
        "line",
        "circle",
        "ellipse",
        "polygon",
        "polyline",
        "use",
        "text",
        "tspan",
        "title",
        "desc",
    ]
)

# The page's own font is used: what matplotlib names is only on the machine it ran on.
_FONT = re.compile(r"font:\s*(?P<rest>[^;]*?)(?P<size>[\d.]+)px[^;]*")
_SIZE = re.compile(r"font-size: ([\d.]+)px")
_FAMILY = re.compile(r"font-family:[^;]*;?\s*")


class FigureError(ValueError):
    """A figure that cannot be put into a page; the message is the reason."""


def inline_figure(file: Path, alt: str, earlier: list[str]) -> str:
    """Turn an SVG file that matplotlib wrote into a part of a page.

    Args:
        file: The figure.
        alt: Its text alternative.
        earlier: What is inlined in the page already.

    Raises:
        FigureError: If there is no such file, or it is not fit for a page.
    """
    if not alt:
        raise FigureError("it has no text alternative: ![what it shows](…)")
    if not file.is_file():
        raise FigureError("there is no such file: make outputs")
    try:
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        _clean(root)
    except (ElementTree.ParseError, ValueError) as error:
        raise FigureError(str(error)) from None
    width = _make_room(root, _MARGIN + _enlarge(root))
    natural = width * _POINTS_TO_PIXELS
    least = natural * _least_scale(root)
    root.set("style", f"--natural: {natural:.0f}px; --least: {least:.0f}px")
    root.set("role", "img")
    root.set("aria-label", alt)
    svg = ElementTree.tostring(root, encoding="unicode")
    svg = unique_ids(svg, f"figure-{file.stem}", earlier)
    return f'<figure class="figure" data-search-exclude>{svg}</figure>'


def _enlarge(root: ElementTree.Element) -> float:
    """Make small letters larger; return how much further the longest word reaches."""
    further = 0.0
    for text in root.iter("text"):
        style = text.get("style", "")
        found = _SIZE.search(style)
        if found:
            size = float(found[1])
            larger = max(size, min(_SMALL, size * _ROOM))
            text.set("style", _SIZE.sub(f"font-size: {larger:g}px", style))
            letters = len("".join(text.itertext()))
            further = max(further, (larger - size) * _WIDTH * letters)
    return further


def _make_room(root: ElementTree.Element, margin: float) -> float:
    """Widen the frame by a margin on each side; return its width in points.

    matplotlib lays out in its own font. In the page's, a label may be a little larger.
    """
    left, top, width, height = map(float, root.get("viewBox", "0 0 0 0").split())
    left, top, width, height = (
        left - margin,
        top - margin,
        width + 2 * margin,
        height + 2 * margin,
    )
    root.set("viewBox", f"{left:g} {top:g} {width:g} {height:g}")
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    return width


def _least_scale(root: ElementTree.Element) -> float:
    """Say how small a figure may be drawn, for its smallest letters to be read."""
    styles = [text.get("style", "") for text in root.iter("text")]
    sizes = [float(size[1]) for size in map(_SIZE.search, styles) if size]
    letters = min(sizes, default=math.inf) * _POINTS_TO_PIXELS
    return max(_LEAST_SCALE, _LEAST_LETTERS / letters)


def _clean(root: ElementTree.Element) -> None:
    """Leave what is drawn, in the page's colors: no metadata, no styles of its own."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{_SVG}metadata":
                parent.remove(child)
            elif child.tag == f"{_SVG}style":
                # One rule for every element. On the root it is inherited by each.
                root.set("stroke-linejoin", "round")
                root.set("stroke-linecap", "butt")
                parent.remove(child)
    for element in root.iter():
        # Without the name spaces, which HTML neither needs nor reads.
        element.tag = str(element.tag).removeprefix(_SVG)
        if element.tag not in _SHAPES:
            raise FigureError(
                f"it holds <{element.tag}>: only shapes and text are kept"
            )
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            name = name.removeprefix(_XLINK)
            elsewhere = re.search(r"url\((?!#)", value) or (
                name == "href" and not value.startswith("#")
            )
            if name.startswith("on") or elsewhere:
                raise FigureError(
                    f"{name}={value!r} acts or reaches out of the picture"
                )
            if name == "style":
                value = _FAMILY.sub("", _FONT.sub(_font, value))
            element.set(name, recolor(value))


def _font(match: re.Match[str]) -> str:
    weight = "; font-weight: bold" if "bold" in match["rest"] else ""
    slant = "; font-style: italic" if "italic" in match["rest"] else ""
    return f"font-size: {match['size']}px{weight}{slant}"


class FigureTreeprocessor(Treeprocessor):
    """Replace the images that are figures of the book."""

    def run(self, root: ElementTree.Element) -> None:
        """Inline every figure of a page."""
        for parent in list(root.iter()):
            for index, child in enumerate(list(parent)):
                source = child.get("src", "")
                if child.tag == "img" and _FIGURES in source:
                    self._replace(parent, index, child, source)

    def _replace(
        self,
        parent: ElementTree.Element,
        index: int,
        image: ElementTree.Element,
        source: str,
    ) -> None:
        name = source.partition(_FIGURES)[2]
        file = Path("docs", _FIGURES, PurePosixPath(name))
        earlier = [block for block in self.md.htmlStash.rawHtmlBlocks if str(block)]
        try:
            drawn = inline_figure(file, image.get("alt", "").strip(), earlier)
        except FigureError as error:
            drawn = undrawn(f"figure {name}: {error}", source)
        placeholder = self.md.htmlStash.store(drawn)
        alone = (
            parent.tag == "p" and len(parent) == 1 and not (parent.text or "").strip()
        )
        if alone and not (image.tail or "").strip():
            # The paragraph becomes the picture: a figure cannot stand inside one.
            parent.remove(image)
            parent.text = placeholder
        else:
            place = ElementTree.Element("span")
            place.text, place.tail = placeholder, image.tail
            parent[index] = place


class FigureExtension(Extension):
    """Inline the figures of the book."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register before MkDocs rewrites the addresses of images (priority 0)."""
        md.treeprocessors.register(FigureTreeprocessor(md), "book-figures", 14)


def makeExtension(**kwargs: object) -> FigureExtension:
    """Give the extension to Markdown, which looks for this name."""
    return FigureExtension(**kwargs)
