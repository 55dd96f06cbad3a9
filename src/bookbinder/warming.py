"""Import and read once what every check would import and read again in its fork."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from bookbinder.drawing import katex
from bookbinder.names.prose_shapes import frequent_shapes
from bookbinder.names.resolving import known_names
from bookbinder.reading.pages import Page
from bookbinder.reading.rendering import render
from bookbinder.running.blocks import fresh_state
from bookbinder.running.figures import draw_as_the_book

__all__ = ["warm_up"]

# What takes long to import, and what nearly every page asks for.
_IMPORTED = (
    "bookbinder.flows.passes",
    "bookbinder.names.backticks",
    "pytest_codeblocks.main",
    "tested_transformer.plots",
    "torch",
)


def warm_up(root: Path, pages: Iterable[Page] = ()) -> None:
    """Make ready for checks of this repository.

    Args:
        root: The repository.
        pages: Pages that are to be checked over and over: what is drawn on them is kept
            for each check.
    """
    draw_as_the_book()
    for name in _IMPORTED:
        import_module(name)
    with fresh_state():
        known_names()
        frequent_shapes()
        render("```python\nx = 1\n```\n", root)
        for page in pages:
            render("\n".join(page.lines), root)
    katex.close()  # A fork cannot share the process; what that has drawn, it can.
