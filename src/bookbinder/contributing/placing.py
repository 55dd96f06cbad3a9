"""Where a page has its place: in the navigation, in the list of chapters, by its title.

A page that nothing leads to is built and never read, and two pages of one title cannot
be told apart in a search.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config import load_config

from bookbinder.page import Page, Problem, load_page
from bookbinder.reading.prose import links, prose_lines

__all__ = ["INDEX", "place_problems", "titles"]

INDEX = "docs/index.md"
_OVERVIEW = "reference/index.md"
_TITLE = re.compile(r"^# (?P<title>.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"docs/chapters/(?P<number>\d\d)-[a-z0-9-]+\.md")


def place_problems(page: Page, root: Path) -> list[Problem]:
    """Find what keeps readers from a page of the book; other pages need no place."""
    if not page.path.startswith("docs/") or page.path == INDEX:
        return []
    line, title = _title_of(page)
    if not title:
        return [Problem(page.path, 1, "a page begins with its title: # The title")]
    found = [*_nowhere(page, title, root), *_unlisted(page, title, root)]
    found += _like_another(page, title, root)
    return [Problem(page.path, line, reason) for reason in found]


def _title_of(page: Page) -> tuple[int, str]:
    """Give the title of a page and its line; (1, "") if there is none."""
    for number, line in prose_lines(page):
        if line.startswith("# "):
            return number, line.removeprefix("# ").strip()
    return 1, ""


def _nowhere(page: Page, title: str, root: Path) -> Iterator[str]:
    path = page.path.removeprefix("docs/")
    entries, unlisted = _navigation(root)
    if unlisted and unlisted.match_file(path):
        return
    names = [name for name, target in entries if target == path]
    if not names:
        yield (
            "no entry of the navigation leads here: add the line "
            f"'- {title}: {path}' where it belongs under nav in mkdocs.yml"
        )
    named = path.startswith(("chapters/", "reference/")) and path != _OVERVIEW
    for name in names if named else ():
        if not title.startswith(name):
            yield f"mkdocs.yml calls this page {name!r}: let both begin alike"


@cache
def _navigation(root: Path) -> tuple[list[tuple[str, str]], Any]:
    """Give the entries of the navigation, and which pages need none."""
    config = load_config(str(root / "mkdocs.yml"))
    return [*_entries(config["nav"])], config["not_in_nav"]


def _entries(nav: Any) -> Iterator[tuple[str, str]]:
    """Give each page of the navigation, with its name there."""
    match nav:
        case str(target):
            yield "", target
        case dict():
            for name, value in nav.items():
                if isinstance(value, str):
                    yield str(name), value
                else:
                    yield from _entries(value)
        case list():
            for value in nav:
                yield from _entries(value)
        case _:
            pass


def _unlisted(page: Page, title: str, root: Path) -> Iterator[str]:
    numbered = _NUMBERED.fullmatch(page.path)
    if not numbered:
        return
    path = page.path.removeprefix("docs/")
    if all(link.target != path for link in links(load_page(root / INDEX, root))):
        yield (
            f"{INDEX} does not list this chapter: add the row "
            f"'| [{title}]({path}) | its question |'"
        )
    for other in (root / "docs/chapters").glob(f"{numbered['number']}-*.md"):
        if other.name != Path(path).name:
            yield f"{other.name} has the same number: take the next one"


def _like_another(page: Page, title: str, root: Path) -> Iterator[str]:
    for path, other in titles(root).items():
        # A module of the library may be called as the chapter about it.
        apart = "docs/reference/" in (path[:15], page.path[:15])
        if path != page.path and not apart and other.lower() == title.lower():
            yield f"{path} has this title too: give this page another"


@cache
def titles(root: Path) -> dict[str, str]:
    """Give the title of every page of the book, by its path from the root."""
    found: dict[str, str] = {}
    for file in sorted((root / "docs").rglob("*.md")):
        title = _TITLE.search(file.read_text("utf-8"))
        if title:
            found[file.relative_to(root).as_posix()] = title["title"].strip()
    return found
