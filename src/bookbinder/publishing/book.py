"""The pages of the book, in the order of its navigation, and their places."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from bookbinder.page import Page, load_page

__all__ = ["Book", "Leaf", "load_book"]

_HEADING = re.compile(r"^# (?P<title>.+)$")


@dataclass(frozen=True)
class Leaf:
    """A page of the book.

    Args:
        title: As the navigation has it, or the page's own.
        part: The part of the book that it stands in, "" if in none.
        page: What the page's file says.
    """

    title: str
    part: str
    page: Page

    @property
    def source(self) -> str:
        """The page's file, from ``docs``: chapters/06-no-peeking.md."""
        return self.page.path.removeprefix("docs/")

    @property
    def folder(self) -> str:
        """The page's folder in the site, "" for the home page."""
        return folder_of(self.source)

    @property
    def name(self) -> str:
        """One word for the page, which no other page has: 06-no-peeking."""
        return self.folder.replace("/", "-").removeprefix("chapters-") or "index"

    def file(self, site: Path) -> Path:
        """The page's HTML in a built site."""
        return site / self.folder / "index.html"


@dataclass(frozen=True)
class Book:
    """What the site is made of: its name, what it is about, its pages."""

    name: str
    summary: str
    license: str
    leaves: tuple[Leaf, ...]


def folder_of(source: str) -> str:
    """Give the folder of the site that a page's file, from ``docs``, is built into."""
    path = PurePosixPath(source).with_suffix("")
    folder = path.parent if path.name == "index" else path
    return "" if folder == PurePosixPath() else folder.as_posix()


def load_book(root: Path) -> Book:
    """Read the configuration of the site, and every page of it."""
    text = (root / "mkdocs.yml").read_text("utf-8")
    config: dict[str, Any] = yaml.load(text, Loader=_Loader)
    leaves: list[Leaf] = []
    listed = dict[str, tuple[str, str]]()
    for part, title, source in _entries(config.get("nav", []), ""):
        listed.setdefault(source, (part, title))
    for file in (root / "docs").rglob("*.md"):
        source = file.relative_to(root / "docs").as_posix()
        # A page that is written to be found, and in no list, comes last.
        part, title = listed.get(source, ("", ""))
        page = load_page(file, root)
        leaves.append(Leaf(title or _own_title(page), part, page))
    order = [*listed]
    leaves.sort(
        key=lambda leaf: (
            order.index(leaf.source) if leaf.source in listed else len(order),
            leaf.source,
        )
    )
    return Book(
        name=config["site_name"],
        summary=config.get("site_description", ""),
        license=config.get("copyright", ""),
        leaves=tuple(leaves),
    )


def _entries(nav: Any, part: str) -> Iterator[tuple[str, str, str]]:
    """Give part, title and file of each page that the navigation lists."""
    for entry in nav:
        if isinstance(entry, str):
            yield part, "", entry
            continue
        for title, below in entry.items():
            if isinstance(below, str):
                yield part, title, below
            else:
                yield from _entries(below, title)


def _own_title(page: Page) -> str:
    found = (_HEADING.match(line) for line in page.lines)
    return next((each["title"] for each in found if each), page.path)


class _Loader(yaml.SafeLoader):
    """Read a configuration, leaving out what an engine would look up or import."""


def _nothing(loader: yaml.Loader, suffix: str, node: yaml.Node) -> None:
    """Give nothing for a value that is not written out."""


_Loader.add_multi_constructor("", _nothing)
