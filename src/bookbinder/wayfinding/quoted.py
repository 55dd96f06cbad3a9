"""A Griffe extension: in the reference, each name leads to the chapters that have it.

It appends a line to the docstring of what the library offers, before mkdocstrings
renders it. The links are those that a page of the reference would have, and the engine
turns and checks them as it does those.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension, Module

from bookbinder.wayfinding.appearances import (
    PACKAGE,
    Appearances,
    exports,
    pages_of,
)
from bookbinder.wayfinding.whereabouts import way

__all__ = ["QuotedExtension", "appearance_line"]

_REFERENCE_PAGE = "reference/module.md"


class QuotedExtension(Extension):
    """Say of each name in which chapters it is listed and used."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Append to the docstrings of the whole library, once it is loaded."""
        if pkg.path != PACKAGE:
            return
        root = Path.cwd()
        pages = pages_of(root)
        for module, names in exports(root).items():
            for name in names:
                line = appearance_line(f"{PACKAGE}.{module}.{name}", pages)
                member = pkg[module][name]
                target = member.final_target if member.is_alias else member
                if target.docstring is None:
                    target.docstring = Docstring("", parent=target)
                said = target.docstring.value
                target.docstring.value = f"{said}\n\n{line}".strip()


def appearance_line(name: str, pages: dict[str, Appearances]) -> str:
    """Say where a name stands in the book, in Markdown; nothing if nowhere."""
    listed = [
        _link(path, shown.title, shown.listed[name])
        for path, shown in pages.items()
        if name in shown.listed
    ]
    used = [
        _link(path, shown.title)
        for path, shown in pages.items()
        if name in shown.used and name not in shown.listed
    ]
    parts = [*_part("listed", listed), *_part("used", used)]
    return f"**In the book**: {'; '.join(parts)}." if parts else ""


def _part(how: str, links: list[str]) -> Iterator[str]:
    if links:
        yield f"{how} in {', '.join(links)}"


def _link(path: str, title: str, anchor: str = "") -> str:
    target = way(_REFERENCE_PAGE, path) + (f"#{anchor}" if anchor else "")
    return f"[{title}]({target})"
