"""Check what a chapter needs beside what every page needs.

A chapter asks a question, has exercises with graders, and stands in the navigation, in
the list of chapters and on the map, in one order. Each problem says what to write.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bookbinder.page import Page, Problem
from bookbinder.publishing.book import navigation

__all__ = ["PLACES", "TEMPLATE", "chapter_problems", "is_chapter"]

TEMPLATE = "docs/chapters/a-chapter-to-copy.md"

_FOLDER = "docs/chapters/"
_QUESTION = re.compile(r"\*[^*].*\?\*")
_PART = re.compile(r"[IVX]+\. ")
PLACES = {
    "docs/index.md": re.compile(r"^\| \[[^]]*\]\((chapters/[^)]+)\) \|", re.MULTILINE),
    "docs/map.md": re.compile(r"^ *%% \[[^]]*\]\((chapters/[^)]+)\)", re.MULTILINE),
}
_GRADER = re.compile(r"\b(?:check|grade)_\w+\(")
_IMPORTED = re.compile(r"from transformer_book import (?:\([^)]*|.*)\bgrade_\w")
# Search engines show about as many letters of a description.
_LEAST, _MOST = 20, 180


def is_chapter(path: str) -> bool:
    """Return whether a page, named from the repository, is a chapter."""
    return path.startswith(_FOLDER)


def chapter_problems(page: Page, root: Path) -> list[Problem]:
    """Return what a chapter lacks, with the line and what to write there."""
    found = [*_front(page), *_exercises(page)]
    if page.path != TEMPLATE:
        found += _place(page, root)
    return found


def _front(page: Page) -> Iterator[Problem]:
    """Check the front matter, the title and the question."""
    meta: dict[str, Any] = page.meta
    words = str(meta.get("description", ""))
    if not _LEAST < len(words) < _MOST:
        yield Problem(
            page.path,
            1,
            f"the description in the front matter has {len(words)} letters: say there "
            f"in more than {_LEAST} and fewer than {_MOST} what the chapter is about",
        )
    tags: object = meta.get("tags")
    if not isinstance(tags, list) or not tags:
        yield Problem(
            page.path,
            1,
            "no tags: list under tags: in the front matter what a reader would search "
            "for, such as names, errors and symptoms",
        )
    text = [(number, line) for number, line in page.prose if line.strip()]
    start = next((i for i, (_, line) in enumerate(text) if line[:2] == "# "), None)
    if start is None:
        yield Problem(page.path, 1, "no title: begin with # and the title")
        return
    number, line = (text[start + 1 :] or text[start:])[0]
    if not _QUESTION.fullmatch(line.strip()):
        yield Problem(
            page.path,
            number,
            "no question: below the title write what the chapter answers, in italics, "
            "*How far back does a token look?*",
        )


def _exercises(page: Page) -> Iterator[Problem]:
    """Check that each exercise has a grader that refuses wrong answers.

    A grader of ``transformer_book`` has its wrong answers in the tests of that
    package. One that stands on a page refuses them there: what it says is an output of
    the page, compared when the page runs. Here it is counted.
    """
    headings = [(n, line) for n, line in page.prose if re.match(r"##+ ", line)]
    start = next((n for n, line in headings if line == "## Exercises"), None)
    if start is None:
        yield Problem(
            page.path,
            len(page.lines),
            "no heading ## Exercises, with at least one exercise under a heading ###",
        )
        return
    end = next((n for n, line in headings if n > start and line[2] == " "), 10**6)
    begins = [n for n, _ in headings if start < n < end]
    if not begins:
        yield Problem(page.path, start, "no exercise, which begins with ###")
    for first, last in zip(begins, [*begins[1:], end], strict=False):
        blocks = [block for block in page.blocks if first < block.line < last]
        code = "".join(block.code for block in blocks)
        if not _GRADER.search(code):
            yield Problem(
                page.path,
                first,
                "no run of this exercise calls a grader, check_...(answer) or "
                "grade_...(answer): define one here, or import it",
            )
        elif not _IMPORTED.search(code):
            outputs = [block.output.text for block in blocks if block.output]
            said = "".join(outputs).splitlines()
            refused = {line for line in said if line not in ("right", "correct")}
            if len(refused) < 3:
                yield Problem(
                    page.path,
                    first,
                    f"this exercise shows {len(refused)} refused answers: print what "
                    "its grader says of three likely wrong ones",
                )


def _place(page: Page, root: Path) -> Iterator[Problem]:
    """Check that the chapter stands in all three lists, behind the same chapter."""
    name = page.path.removeprefix("docs/")
    title = page.anchors().get("", "Title")
    short = title.partition(":")[0]
    lists = {
        "mkdocs.yml": [
            source
            for part, _, source in navigation(root)
            if _PART.match(part) and is_chapter(f"docs/{source}")
        ]
    }
    for place, entry in PLACES.items():
        lists[place] = entry.findall((root / place).read_text("utf-8"))
    write = {
        "mkdocs.yml": f"- {title}: {name}, under the part of the book it belongs to",
        "docs/index.md": f"| [{short}]({name}) | its question |, in the list",
        "docs/map.md": (
            f"{short} into the box of its part and %% [{short}]({name}) below, "
            "then run make diagrams"
        ),
    }
    for place, chapters in lists.items():
        if name not in chapters:
            yield Problem(page.path, 1, f"not in {place}: write {write[place]}")
    everywhere = {*lists["mkdocs.yml"]}.intersection(*lists.values())
    standing = {
        place: _before(name, [each for each in chapters if each in {*everywhere, name}])
        for place, chapters in lists.items()
        if name in chapters
    }
    if len({*standing.values()}) > 1:
        where = ", ".join(f"{each} in {place}" for place, each in standing.items())
        reason = f"its places differ; it stands behind {where}: move it in one of them"
        yield Problem(page.path, 1, reason)


def _before(name: str, chapters: list[str]) -> str:
    at = chapters.index(name)
    return chapters[at - 1].removeprefix("chapters/") if at else "none"
