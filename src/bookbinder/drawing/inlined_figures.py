"""Inline the figures of ``assets/figures/`` into the page.

A picture in ``<img>`` does not know the page's palette and font; inlined, it follows
both. The title of an image in Markdown becomes its caption.
"""

import html
import math
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from markdown.treeprocessors import Treeprocessor

from bookbinder.drawing.svg import recolor, unique_ids
from bookbinder.drawing.undrawn import undrawn

_FIGURES = "assets/figures/"
_POINTS_TO_PIXELS = 4 / 3
_MARGIN = 6.0

# A figure may shrink to this share of its width, but its smallest letters must keep
# this many pixels.
_LEAST_SCALE = 0.65
_LEAST_LETTERS = 11.0

_SIZE = re.compile(r"font-size: ([\d.]+)px")
# Use the page's font; matplotlib's exists only on the machine that drew the picture.
_FAMILY = re.compile(r"font-family:[^;]*;?\s*")
_NAMESPACE = re.compile(r"\{[^}]*\}")


class FigureTreeprocessor(Treeprocessor):
    """Replace the images that are figures of the book."""

    def run(self, root: ElementTree.Element) -> None:
        """Inline every figure of a page."""
        for parent in root.iter():
            for image in parent.findall("img"):
                if _FIGURES in image.get("src", ""):
                    placeholder = self.md.htmlStash.store(self._drawn(image))
                    text = f"{parent.text or ''}{image.tail or ''}".strip()
                    image.attrib.clear()
                    image.tag, image.text = "span", placeholder
                    if len(parent) == 1 and not text:
                        # The picture replaces its paragraph: it may not be in one.
                        parent.remove(image)
                        parent.text = placeholder

    def _drawn(self, image: ElementTree.Element) -> str:
        source, alt = image.get("src", ""), image.get("alt", "").strip()
        name = source.partition(_FIGURES)[2]
        try:
            file = Path("docs", _FIGURES, name)
            svg = _inlined(file, alt, self.md.htmlStash.rawHtmlBlocks)
        except (ElementTree.ParseError, ValueError) as error:
            return undrawn(f"figure {name}: {error}", source)
        caption = html.escape(image.get("title", "").strip(), quote=False)
        below = f"<figcaption>{caption}</figcaption>" if caption else ""
        return f'<figure class="figure" data-search-exclude>{svg}{below}</figure>'


def _inlined(file: Path, alt: str, earlier: Iterable[object]) -> str:
    """Turn an SVG file by matplotlib into a part of a page."""
    if not file.is_file():
        raise ValueError("there is no such file: make outputs")
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    _clean(root)
    natural, least = _fit(root)
    *_, width, height = root.get("viewBox", "").split()
    sizes = f"--natural: {natural:.0f}px; --least: {least:.0f}px"
    # Out of view it is not laid out, and gets its size only from these.
    root.set("style", f"{sizes}; aspect-ratio: {width} / {height}")
    root.set("role", "img")
    root.set("aria-label", alt)
    svg = ElementTree.tostring(root, encoding="unicode")
    return unique_ids(svg, f"figure-{file.stem}", earlier)


def _clean(root: ElementTree.Element) -> None:
    """Keep only what is drawn, in the page's colors, without metadata and styles."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    # matplotlib's style sheet sets this on every element; set here, it is inherited.
    root.set("stroke-linejoin", "round")
    root.set("stroke-linecap", "butt")
    for element in root.iter():
        # HTML ignores namespaces.
        element.tag = _NAMESPACE.sub("", element.tag)
        element.attrib = {
            _NAMESPACE.sub("", name): recolor(_FAMILY.sub("", value))
            for name, value in element.attrib.items()
        }


def _fit(root: ElementTree.Element) -> tuple[float, float]:
    """Make the frame wider.

    Returns:
        The natural width in pixels, and the least one at which letters can be read.
    """
    styles = [text.get("style", "") for text in root.iter("text")]
    letters = [float(size[1]) for style in styles if (size := _SIZE.search(style))]
    left, top, width, height = map(float, root.get("viewBox", "0 0 0 0").split())
    frame = (left - _MARGIN, top - _MARGIN, width + 2 * _MARGIN, height + 2 * _MARGIN)
    root.set("viewBox", " ".join(f"{length:g}" for length in frame))
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    natural = frame[2] * _POINTS_TO_PIXELS
    smallest = min(letters, default=math.inf) * _POINTS_TO_PIXELS
    return natural, natural * max(_LEAST_SCALE, _LEAST_LETTERS / smallest)
