"""Put diagrams into pages as SVG, which are drawn once and stored by their content.

``python -m bookbinder.drawing`` draws them in a browser; including them needs none. The
name of a drawing is a hash of everything that it depends on, so a changed diagram
counts as not drawn.
"""

import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from markdown import Markdown

from bookbinder.drawing.links import linked
from bookbinder.drawing.svg import PALETTE, unique_ids
from bookbinder.drawing.undrawn import previewing, undrawn

ROOT = Path(__file__).resolve().parents[3]
DRAWING_SCRIPT = Path(__file__).with_name("drawing.js")
# The drawings of the book in the current folder.
DRAWINGS = Path("docs", "assets", "diagrams")

_TITLE = re.compile(r"<title[^>]*>([^<]+)</title>")
_LEAF = re.compile(r"(?P<start><tspan\b[^>]*>)(?P<text>[^<]+)</tspan>")
_SYMBOL = re.compile(
    r"\b(?P<letter>[A-Za-z])(?P<how>[_^])(?P<small>kv|[A-Za-z0-9])\b(?P<rest>[^\w^]*)"
)
_INFINITY = re.compile(r"-inf\b")
_COMMENT = re.compile(r"^[ \t]*%%.*(?:\n|\Z)", re.MULTILINE)


def format_diagram(
    source: str, language: str, class_name: str, options: Any, md: Markdown, **_: Any
) -> str:
    """Turn a mermaid fence into its drawing, as a formatter for superfences."""
    if problem := diagram_problem(source):
        return undrawn(f"diagram {problem}", source)
    file = drawing(source)
    if file.is_file():
        svg = file.read_text(encoding="utf-8").strip()
        svg = unique_ids(svg, f"diagram-{file.stem[:8]}", md.htmlStash.rawHtmlBlocks)
        try:
            svg = linked(svg, source, md)
        except ValueError as error:
            return undrawn(f"diagram {error}", source)
        svg = _LEAF.sub(_typeset, svg)
        # The title is shown as the caption, and read aloud.
        title = _TITLE.search(svg)
        below = f"<figcaption>{title[1]}.</figcaption>" if title else ""
        return f'<figure class="diagram" data-search-exclude>{svg}{below}</figure>'
    if previewing():
        # mkdocs-mermaid2-plugin finds it by its class, and the browser draws it.
        return f'<div class="mermaid" data-undrawn>{html.escape(source)}</div>'
    return undrawn("diagram not drawn: run make diagrams", source)


def _typeset(leaf: re.Match[str]) -> str:
    """Set symbols as in formulas: W^Q, d_k, H_kv with small letters, -inf as −∞."""
    text = _INFINITY.sub("−∞", leaf["text"])
    return leaf["start"] + _SYMBOL.sub(_small, text) + "</tspan>"


def _small(symbol: re.Match[str]) -> str:
    # What follows goes back to the line; a letter without width, if nothing does.
    down = 0.2 if symbol["how"] == "_" else -0.35
    return (
        f'{symbol["letter"]}<tspan dy="{down / 0.75:.3f}em" font-size="75%">'
        f'{symbol["small"]}</tspan><tspan dy="{-down:.3f}em">'
        f"{symbol['rest'] or '&#8203;'}</tspan>"
    )


def diagram_problem(source: str) -> str | None:
    """Return why a diagram cannot be drawn or read aloud, or None."""
    if not re.search(r"^\s*flowchart\b", source, re.MULTILINE):
        return "is not a flowchart, the only kind that is drawn in the book's colors"
    for name in ("accTitle", "accDescr"):
        words = rf"^\s*{name}[ \t]*(?::[ \t]*\S|{{\s*[^\s}}])"
        if not re.search(words, source, re.MULTILINE):
            return f"has no {name}, which screen readers read out"
    return None


def drawing(source: str) -> Path:
    """Return the file of a drawing, named by a hash of its source and the drawing code.

    Comments do not count: they hold a diagram's program and links, which do not change
    the drawing.
    """
    digest = hashlib.sha256(_drawing_code())
    digest.update(_COMMENT.sub("", source).strip().encode())
    return DRAWINGS / f"{digest.hexdigest()[:16]}.svg"


@cache
def _drawing_code() -> bytes:
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    mermaid = package["dependencies"]["mermaid"]
    script = DRAWING_SCRIPT.read_text(encoding="utf-8")
    return "\0".join([mermaid, script, json.dumps(PALETTE)]).encode()
