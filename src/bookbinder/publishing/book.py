"""The pages of the book in the order of its navigation, and the book's addresses."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pymdownx.slugs import slugify

from bookbinder.page import Page, load_page
from bookbinder.publishing.records import Record, foundations, fresh_record

# Addresses appear in commands and pages, so they may not have quotes or spaces.
_ADDRESS = re.compile(r"https?://[\w.:/~%@+-]+", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """A page in the navigation of the book, and its record if it is verified."""

    title: str
    part: str
    page: Page
    record: Record | None = None

    @property
    def source(self) -> str:
        """The page's file within ``docs``: chapters/no-peeking.md."""
        return self.page.path.removeprefix("docs/")

    @property
    def notebook(self) -> str:
        """The page's notebook within the site: chapters/no-peeking.ipynb."""
        return self.source.removesuffix(".md") + ".ipynb"

    @property
    def folder(self) -> str:
        """The page's folder in the site, "" for the home page."""
        return folder_of(self.source)

    @property
    def name(self) -> str:
        """A unique name of the page, in one word: no-peeking."""
        return self.folder.replace("/", "-").removeprefix("chapters-") or "index"

    @property
    def up(self) -> str:
        """The path from the page's folder to the top of the site: ../../."""
        return "../" * len(PurePosixPath(self.folder).parts)

    def file(self, site: Path) -> Path:
        """Return the page's HTML in a built site."""
        return site / self.folder / "index.html"


@dataclass(frozen=True)
class Book:
    """The content of the site; ``site`` and ``repository`` are addresses, or ""."""

    name: str
    summary: str
    license: str
    entries: tuple[Entry, ...]
    site: str = ""
    repository: str = ""


def parts(book: Book) -> dict[str, Book]:
    """Return each part as a book of its own, by the name of its file.

    A part of one page, such as the home page, goes with the next part.
    """
    books: dict[str, Book] = {}
    entries: list[Entry] = []
    for part, group in groupby(book.entries, key=lambda entry: entry.part):
        pages = [*group]
        entries += pages
        if len(pages) > 1 or pages[0] is book.entries[-1]:
            name = f"tested-transformer-{slugify(case='lower')(part, '-')}.pdf"
            title = f"{book.name}: {part}"
            books[name] = replace(book, name=title, entries=tuple(entries))
            entries = []
    return books


def folder_of(source: str) -> str:
    """Return the folder of the site for a page's file within ``docs``."""
    path = source.removesuffix(".md")
    return "" if path == "index" else path.removesuffix("/index")


def load_book(root: Path, environment: Mapping[str, str] = os.environ) -> Book:
    """Read the configuration of the site, and every page of its navigation.

    The addresses come from ``SITE_URL`` and ``REPO_URL``, so that a fork's book links
    to the fork. A book built locally has neither, and no such links.

    Raises:
        ValueError: If one of the two is not an address.
    """
    config, digest = _config(root), foundations(root)
    site, repository = (_address(environment, n) for n in ("SITE_URL", "REPO_URL"))
    entries: list[Entry] = []
    for part, title, source in navigation(root):
        page = load_page(root / "docs" / source, root)
        entries.append(Entry(title, part, page, fresh_record(root, page, digest)))
    return Book(
        name=config["site_name"],
        summary=config["site_description"],
        license=config["copyright"],
        entries=tuple(entries),
        site=f"{site}/" if site else "",
        repository=repository,
    )


def navigation(root: Path) -> list[tuple[str, str, str]]:
    """Return part, title and file, within ``docs``, of each page in the navigation."""

    def walk(nav: Any, part: str) -> Iterator[tuple[str, str, str]]:
        for title, below in (item for entry in nav for item in entry.items()):
            if isinstance(below, str):
                yield part, title, below
            else:
                yield from walk(below, title)

    return [*walk(_config(root)["nav"], "")]


def _config(root: Path) -> dict[str, Any]:
    text = (root / "mkdocs.yml").read_text("utf-8")
    config: dict[str, Any] = yaml.load(text, Loader=_Loader)
    return config


class _Loader(yaml.SafeLoader):
    """Load a configuration, ignoring tags that an engine would look up or import."""


def _nothing(loader: yaml.Loader, suffix: str, node: yaml.Node) -> None: ...


_Loader.add_multi_constructor("", _nothing)


def _address(environment: Mapping[str, str], name: str) -> str:
    url = environment.get(name, "").strip().rstrip("/")
    if url and not _ADDRESS.fullmatch(url):
        raise ValueError(f"{name}={url}: wanted an address, https://...")
    return url
