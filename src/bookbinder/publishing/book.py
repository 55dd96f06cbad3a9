"""The pages of the book in the order of its navigation, and where the book lives."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from bookbinder.page import Page, load_page

__all__ = ["Book", "Leaf", "folder_of", "load_book"]

# It is written into commands and pages, so it has no quotes, blanks or the like.
_ADDRESS = re.compile(r"https?://[\w.:/~%@+-]+", re.ASCII)


@dataclass(frozen=True)
class Leaf:
    """A page of the book, with its title and its part as the navigation has them."""

    title: str
    part: str
    page: Page

    @property
    def source(self) -> str:
        """The page's file, from ``docs``: chapters/no-peeking.md."""
        return self.page.path.removeprefix("docs/")

    @property
    def notebook(self) -> str:
        """Where the site has the page's notebook: chapters/no-peeking.ipynb."""
        return self.source.removesuffix(".md") + ".ipynb"

    @property
    def folder(self) -> str:
        """The page's folder in the site, "" for the home page."""
        return folder_of(self.source)

    @property
    def name(self) -> str:
        """One word for the page, which no other page has: no-peeking."""
        return self.folder.replace("/", "-").removeprefix("chapters-") or "index"

    @property
    def up(self) -> str:
        """The way from the page's folder to the top of the site: ../../."""
        return "../" * len(PurePosixPath(self.folder).parts)

    def file(self, site: Path) -> Path:
        """Return the page's HTML in a built site."""
        return site / self.folder / "index.html"


@dataclass(frozen=True)
class Book:
    """What the site is made of; ``site`` and ``repository`` are addresses, or ""."""

    name: str
    summary: str
    license: str
    leaves: tuple[Leaf, ...]
    site: str = ""
    repository: str = ""


def folder_of(source: str) -> str:
    """Return the folder of the site that a page's file, from ``docs``, becomes."""
    path = PurePosixPath(source).with_suffix("")
    folder = path.parent if path.name == "index" else path
    return "" if folder == PurePosixPath() else folder.as_posix()


def load_book(root: Path, environment: Mapping[str, str] = os.environ) -> Book:
    """Read the configuration of the site, and every page of its navigation.

    The addresses come from ``SITE_URL`` and ``REPO_URL``, so that a fork's book leads
    to the fork. A book that was built at home has neither, and leads nowhere.

    Raises:
        ValueError: If one of the two is no address.
    """
    text = (root / "mkdocs.yml").read_text("utf-8")
    config: dict[str, Any] = yaml.load(text, Loader=_Loader)
    leaves = [
        Leaf(title, part, load_page(root / "docs" / source, root))
        for part, title, source in _entries(config["nav"], "")
    ]
    site, repository = (_address(environment, n) for n in ("SITE_URL", "REPO_URL"))
    return Book(
        config["site_name"],
        config["site_description"],
        config["copyright"],
        tuple(leaves),
        f"{site}/" if site else "",
        repository,
    )


def _address(environment: Mapping[str, str], name: str) -> str:
    url = environment.get(name, "").strip().rstrip("/")
    if url and not _ADDRESS.fullmatch(url):
        raise ValueError(f"{name}={url}: wanted an address, https://...")
    return url


def _entries(nav: Any, part: str) -> Iterator[tuple[str, str, str]]:
    """Return part, title and file of each page that the navigation lists."""
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield part, title, below
            else:
                yield from _entries(below, title)


class _Loader(yaml.SafeLoader):
    """Read a configuration, leaving out what an engine would look up or import."""


def _nothing(loader: yaml.Loader, suffix: str, node: yaml.Node) -> None: ...


_Loader.add_multi_constructor("", _nothing)
