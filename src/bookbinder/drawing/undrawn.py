"""Report what could not be drawn: an error in a release, a box in a preview.

Formulas, diagrams and figures are drawn by Markdown extensions, which do not know the
page that they work on. MkDocs adds the name of the page, and the audit, which reads the
boxes, adds the line.
"""

import html
import os

from mkdocs.exceptions import BuildError
from pymdownx.superfences import SuperFencesException


class UndrawnError(BuildError, SuperFencesException):
    """Something on a page cannot be drawn; the message says what, and why.

    MkDocs prints a ``BuildError`` without a traceback, and superfences lets only its
    own exception pass.
    """


def previewing() -> bool:
    """Return whether the page is built for its writer or the audit, not a release."""
    return os.environ.get("BOOKBINDER_PREVIEW") == "1"


def undrawn(message: str, source: str, *, inline: bool = False) -> str:
    """Raise an error or, in a preview, return a box that shows the message.

    Args:
        message: What is wrong, in one line.
        source: The source of the drawing, as on the page.
        inline: Whether the box must fit into a line of text.

    Raises:
        UndrawnError: Unless this is a preview.
    """
    if not previewing():
        raise UndrawnError(message)
    tag = "span" if inline else "div"
    quoted = html.escape(source).replace("\n", "&#10;")
    box = f'<{tag} class="book-error" data-source="{quoted}">'
    return f"{box}{html.escape(message)}</{tag}>"
