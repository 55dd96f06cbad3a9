"""What could not be drawn: an error in a release, a box on the page in a preview.

Formulas, diagrams and figures are drawn while a page is turned into HTML, by Markdown
extensions that are not told which page it is. An error has to name the page and the
line all the same, so the source is looked up in the pages.
"""

import html
import os
from collections.abc import Iterator
from pathlib import Path

from mkdocs.exceptions import BuildError
from pymdownx.superfences import SuperFencesException

from bookbinder.page import load_page

__all__ = ["UndrawnError", "previewing", "undrawn"]


class UndrawnError(BuildError, SuperFencesException):
    """Something on a page cannot be drawn; the message begins ``page.md:line:``.

    MkDocs prints a ``BuildError`` without a traceback, and superfences lets only its
    own exception pass.
    """


def previewing() -> bool:
    """Tell whether the page is for its writer, or for the audit, and not a release."""
    return os.environ.get("BOOKBINDER_PREVIEW") == "1"


def undrawn(message: str, source: str, *, inline: bool = False) -> str:
    """Refuse to go on; in a preview, return a box that shows the message instead.

    Args:
        message: What is wrong, in one line.
        source: What was to be drawn, as it stands on the page.
        inline: Whether the box must fit into a line of text.

    Raises:
        UndrawnError: Unless this is a preview.
    """
    if not previewing():
        lines = [f"{place}: {message}" for place in _places(source)]
        raise UndrawnError("\n".join(lines) or f"docs: {message}")
    tag = "span" if inline else "div"
    quoted = html.escape(source).replace("\n", "&#10;")
    box = f'<{tag} class="book-error" data-source="{quoted}">'
    return f"{box}{html.escape(message)}</{tag}>"


def _places(source: str) -> Iterator[str]:
    """Find every place in the pages, as ``page.md:line``, that holds a source."""
    for file in sorted(Path("docs").rglob("*.md")):
        page = load_page(file, Path())
        drawn = [(part.line, part.text) for part in (*page.formulas(), *page.fences)]
        drawn += [(image.line, image.target) for image in page.images]
        for line, text in drawn:
            if text.split() == source.split():
                yield f"{page.path}:{line}"
