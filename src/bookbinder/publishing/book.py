"""The pages of the book in the order of its navigation, and the book's addresses."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.config import load_config

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
    def pdf(self) -> str:
        """The page as printed, within the site: chapters/no-peeking.pdf."""
        return self.source.removesuffix(".md") + ".pdf"

    @property
    def address(self) -> str:
        """The page's address within the site, "" for the home page."""
        return address_of(self.source)

    @property
    def name(self) -> str:
        """A unique name of the page, in one word: no-peeking."""
        words = self.address.strip("/").replace("/", "-")
        return words.removeprefix("chapters-") or "index"

    @property
    def up(self) -> str:
        """The path from the page's address to the top of the site: ../../."""
        return "../" * self.address.count("/")

    def file(self, site: Path) -> Path:
        """Return the page's HTML in a built site."""
        return site / self.address / "index.html"


@dataclass(frozen=True)
class Book:
    """The content of the site; ``site`` and ``repository`` are addresses, or ""."""

    name: str
    summary: str
    license: str
    entries: tuple[Entry, ...]
    site: str = ""
    repository: str = ""


def address_of(source: str) -> str:
    """Return the address within the site of a page's file: chapters/no-peeking/."""
    path = source.removesuffix(".md")
    return "" if path == "index" else path.removesuffix("/index") + "/"


def load_book(root: Path, environment: Mapping[str, str] = os.environ) -> Book:
    """Read the configuration of the site, and every page of its navigation.

    The addresses come from ``SITE_URL`` and ``REPO_URL``, so that a fork's book links
    to the fork. A book built locally has neither, and no such links.

    Raises:
        ValueError: If one of the two is not an address.
    """
    config, digest = load_config(str(root / "mkdocs.yml")), foundations(root)
    site, repository = (_address(environment, n) for n in ("SITE_URL", "REPO_URL"))

    def entries(nav: Any, part: str) -> Iterator[Entry]:
        for title, below in (item for entry in nav for item in entry.items()):
            if isinstance(below, str):
                page = load_page(root / "docs" / below, root)
                yield Entry(title, part, page, fresh_record(root, page, digest))
            else:
                yield from entries(below, title)

    return Book(
        name=config["site_name"],
        summary=config["site_description"],
        license=config["copyright"],
        entries=(*entries(config["nav"], ""),),
        site=f"{site}/" if site else "",
        repository=repository,
    )


def _address(environment: Mapping[str, str], name: str) -> str:
    url = environment.get(name, "").strip().rstrip("/")
    if url and not _ADDRESS.fullmatch(url):
        raise ValueError(f"{name}={url}: wanted an address, https://...")
    return url
