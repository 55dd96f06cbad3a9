"""What could not be drawn: an error in a release, a box on the page in a preview.

Formulas, diagrams and figures are drawn while a page is turned into HTML, by Markdown
extensions that are not told which page it is. An error has to name the page and the
line all the same, so the source is looked up in the pages.
"""

import html
import os
import re
from pathlib import Path

from mkdocs.exceptions import BuildError
from pymdownx.superfences import SuperFencesException


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
        lines = [f"{place}: {message}" for place in places(source)]
        raise UndrawnError("\n".join(lines) or f"docs: {message}")
    tag = "span" if inline else "div"
    quoted = html.escape(source, quote=True).replace("\n", "&#10;")
    return (
        f'<{tag} class="book-error" data-source="{quoted}">{html.escape(message)}'
        f"</{tag}>"
    )


def places(source: str, docs: Path = Path("docs")) -> list[str]:
    """Find every place in the pages, as ``page.md:line``, that holds a source.

    A word of TeX may stand in prose as well, so a source between dollars or parens is
    looked for first. The first line that matches wins over the white space in it.
    """
    words = r"\s+".join(map(re.escape, source.split()))
    for pattern in (rf"(?:\$|\\[(\[])\s*{words}\s*(?:\$|\\[)\]])", words):
        found = [
            f"{page.as_posix()}:{text.count(chr(10), 0, match.start()) + 1}"
            for page in sorted(docs.rglob("*.md"))
            for text in (page.read_text(encoding="utf-8"),)
            for match in re.finditer(pattern, text)
        ]
        if found or not words:
            return found
    return []
