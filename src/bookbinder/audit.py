"""Refuse everything that a reader would see but that has not run.

The page is rendered as the site renders it, and the code shown is compared with the
code that ``page`` found. So a fence that only one of them understands cannot hide.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from bs4 import BeautifulSoup

from bookbinder.listings import Section, listed_sections, listing_problems
from bookbinder.names import name_problems
from bookbinder.numbers import number_problems
from bookbinder.page import INERT_LANGUAGES, Listing, Page, Problem
from bookbinder.rendering import Shown, render, shown_code

# The fewest words that can describe a picture.
_ENOUGH = 8

# Marks that remain in the text only if the Markdown around them is broken.
_LEFTOVERS = {
    "a fence": re.compile(r"```|~~~"),
    "a formula": re.compile(r"\$(?!\d)|\\\(|\\\[|\\[a-z]+\{"),
    # As others write them: !!! note, ??? note, > [!NOTE].
    "a call-out or tab, /// note | Title": re.compile(
        r"^(?:///|!!!|\?\?\?) |^\[!\w+\]"
    ),
    "a link": re.compile(r"\]\(|\]\[(?!\d)"),
    "a footnote, which this book does not use": re.compile(r"\[\^"),
    "an include": re.compile(r"--8<--"),
    "a comment": re.compile(r"<!--"),
    "a heading": re.compile(r"^#{1,6} "),
    "a table": re.compile(r"^\|.*\|\s*$"),
    "emphasis": re.compile(r"\*\*|(?<!\w)__|__(?!\w)"),
}

_NOT_RUN = {
    "python": "shown as code, but never run: write it as ```python, at column 0",
    "text": "shown as an output, but compared with nothing: mark it as one",
    "py": "shown as a listing, but not what the source file says",
    "js": "shown as a listing, but not what the source file says",
}
_NO_FORM = (
    "shown as code, but not in one of the forms of a page, at column 0: ```python "
    "(run), ```text (an output), ```py title=… (a listing) and, shown only, "
    f"{', '.join(sorted(INERT_LANGUAGES))}"
)


def audit(page: Page, root: Path) -> list[Problem]:
    """Return every problem of a page that can be seen without running it."""
    # Diagrams need PyTorch, which is imported where it is first needed.
    from bookbinder.shapes import diagram_problems

    problems = [*page.problems, *listing_problems(page, root)]
    sections = [*listed_sections(page, root)]
    if page.code_is_known and len(sections) == len(page.listings):
        problems += _shown_problems(page, root, sections)
        problems += number_problems(page, sections)
    problems += [*diagram_problems(page), *name_problems(page, root)]
    return sorted(set(problems), key=lambda problem: problem.line)


def _shown_problems(
    page: Page, root: Path, sections: Sequence[tuple[Listing, Section]]
) -> Iterator[Problem]:
    """Render the page, and return what is wrong with what a reader sees."""
    try:
        html = render("\n".join(page.lines) + "\n", root)
        code = shown_code(html)
    except Exception as error:
        yield Problem(page.path, _find(page, str(error)), f"not rendered: {error}")
        return
    for box in html.select(".book-error"):
        line = _find(page, str(box.get("data-source", "")))
        yield Problem(page.path, line, box.get_text(" ", strip=True))
    for box in html.select("[data-undrawn]"):
        line = _find(page, box.get_text())
        yield Problem(page.path, line, "diagram not drawn: run make diagrams")
    yield from _compare_code(page, code, sections)
    yield from _images(page, html)
    for element in html.select("[hidden], div[style], details[style]"):
        line = _find(page, element.get_text())
        reason = "this is hidden or styled: a page shows things as they are"
        yield Problem(page.path, line, reason)
    yield from _leftovers(page, html)


def _compare_code(
    page: Page, shown: list[Shown], sections: Sequence[tuple[Listing, Section]]
) -> Iterator[Problem]:
    """Compare the code shown with blocks that run, outputs, and listings from src."""
    queues = defaultdict[str, deque[tuple[str, int]]](deque)
    for block in page.blocks:
        queues["python"].append((block.code, block.line))
        if block.output:
            queues["text"].append((block.output.text, block.output.line))
    for listing, section in sections:
        queues[listing.language].append((section.text, listing.line))
    refused = False
    for block in shown:
        if block.language not in INERT_LANGUAGES:
            queue = queues[block.language]
            if queue and _same(queue[0][0], block.text):
                queue.popleft()
            else:
                refused = True
                reason = _NOT_RUN.get(block.language, _NO_FORM)
                yield Problem(page.path, _find(page, block.text), reason)
    for _, line in [] if refused else [left for q in queues.values() for left in q]:
        yield Problem(page.path, line, "this runs or is compared, but nobody sees it")


def _same(one: str, other: str) -> bool:
    """Compare as a browser shows text: without white space at the ends, and no tabs."""
    texts = (
        [line.expandtabs(4).rstrip() for line in text.strip("\n").split("\n")]
        for text in (one, other)
    )
    return next(texts) == next(texts)


def _images(page: Page, html: BeautifulSoup) -> Iterator[Problem]:
    """Accept only pictures that a block of this page can draw."""
    folder = page.figures.relative_to("docs").as_posix()
    shown = len(html.select("figure.figure, .book-error"))
    for image in page.images:
        parent = PurePosixPath(image.target).parent.as_posix()
        if not re.fullmatch(rf"(?:\.\./)*{re.escape(folder)}", parent):
            reason = f"pictures of this page lie in {folder}/"
        elif not image.alt.strip():
            reason = "no text alternative: describe the picture in the brackets"
        elif len(image.alt.split()) < _ENOUGH:
            reason = "this text alternative does not describe the picture: say more"
        elif shown < len(page.images):
            reason = "a picture is written on this page and not shown"
        else:
            continue
        yield Problem(page.path, image.line, reason)


def _leftovers(page: Page, html: BeautifulSoup) -> Iterator[Problem]:
    """Find remains of broken Markdown in the text that a reader sees."""
    for element in html.select("pre, code, svg, .katex, .book-error, .mermaid"):
        element.decompose()
    for line in html.get_text().splitlines():
        for form, pattern in _LEFTOVERS.items():
            if left := pattern.search(line):
                excerpt = " ".join(line[left.start() :][:30].split())
                reason = f"left undrawn: {form} ({excerpt}): close it, or fix it"
                number = _find(page, line[left.start() :] or line)
                yield Problem(page.path, number, reason)


def _find(page: Page, text: str) -> int:
    """Return the line of the page on which a shown text begins; 1 if it is not found.

    The whole text is searched for first, line by line, then less and less of it.
    """
    needle = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line.strip() for line in page.lines]
    for count in range(len(needle), 0, -1):
        for index in range(len(lines)):
            if lines[index : index + count] == needle[:count]:
                return index + 1
    first = needle[0] if needle else "nothing"
    return next((n for n, line in enumerate(lines, start=1) if first in line), 1)
