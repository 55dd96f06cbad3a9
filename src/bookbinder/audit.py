"""Refuse everything that a reader would see but that has not run.

The page is rendered as the site renders it, and the code shown is compared with the
code that ``page`` found. So a fence that only one of them understands cannot hide.
"""

import re
from pathlib import Path, PurePosixPath

from bs4 import BeautifulSoup, Tag

from bookbinder.listings import ListingError, find_section
from bookbinder.names import name_problems
from bookbinder.numbers import number_problems
from bookbinder.page import INERT_LANGUAGES, Page, Problem
from bookbinder.rendering import Shown, render, shown_code

# The fewest words that can describe a picture.
_ENOUGH = 8

_TEXT = (
    *("p", "li", "td", "th", "dt", "dd", "summary", "label", "figcaption"),
    *("h1", "h2", "h3", "h4", "h5", "h6"),
)

# Marks that remain in the text only if the Markdown around them is broken.
_LEFTOVERS = {
    "a fence": re.compile(r"```|~~~"),
    "a formula": re.compile(r"\$(?!\d)|\\\(|\\\[|\\[a-z]+\{"),
    # As others write them: !!! note, ??? note, > [!NOTE].
    "a call-out or tab, /// note | Title": re.compile(
        r"^(?:///|!!!|\?\?\?) |^\[!\w+\]", re.MULTILINE
    ),
    "a link": re.compile(r"\]\(|\]\[(?!\d)"),
    "a footnote, which this book does not use": re.compile(r"\[\^"),
    "an include": re.compile(r"--8<--"),
    "a comment": re.compile(r"<!--"),
    "a heading": re.compile(r"^#{1,6} ", re.MULTILINE),
    "a table": re.compile(r"^\|.*\|\s*$", re.MULTILINE),
    "emphasis": re.compile(r"\*\*|(?<!\w)__|__(?!\w)"),
}


def audit(page: Page, root: Path) -> list[Problem]:
    """Return every problem of a page that can be seen without running it."""
    return sorted(set(_audited(page, root)), key=lambda problem: problem.line)


def _audited(page: Page, root: Path) -> list[Problem]:
    problems = [*page.problems]
    expected_listings: list[str] = []
    for listing in page.listings:
        try:
            section = find_section(root, listing.path, listing.section)
        except ListingError as error:
            problems.append(Problem(page.path, listing.line, str(error)))
        else:
            expected_listings.append(section.text)
    # If its code cannot be read, it cannot be compared with what is shown.
    if not any(page.is_code(problem.line) for problem in problems):
        problems += _shown_problems(page, root, expected_listings)
        problems += number_problems(page, root)
    # Diagrams need PyTorch, which is imported where it is first needed.
    from bookbinder.diagrams.passes import diagram_problems

    return [*problems, *diagram_problems(page), *name_problems(page, root)]


def _shown_problems(
    page: Page, root: Path, expected_listings: list[str]
) -> list[Problem]:
    """Render the page, and return what is wrong with what a reader sees."""
    try:
        html = render("\n".join(page.lines) + "\n", root)
    except Exception as error:
        return [Problem(page.path, _find(page, str(error)), f"not rendered: {error}")]
    problems = _drawing_errors(page, html)
    problems += _compare_code(page, shown_code(html), expected_listings)
    problems += _images(page, html)
    for element in html.select("[hidden], div[style], details[style]"):
        line = _find(page, element.get_text())
        reason = "this is hidden or styled: a page shows things as they are"
        problems.append(Problem(page.path, line, reason))
    return problems + _leftovers(page, html)


def _compare_code(
    page: Page, shown: list[Shown], expected_listings: list[str]
) -> list[Problem]:
    """Compare the code shown with blocks that run, outputs, and listings from src."""
    outputs = [block.output for block in page.blocks if block.output]
    wanted = {
        "python": [(block.code, block.line) for block in page.blocks],
        "text": [(output.text, output.line) for output in outputs],
        **{
            language: [
                (text, listing.line)
                for text, listing in zip(expected_listings, page.listings, strict=True)
                if listing.language == language
            ]
            for language in ("py", "js")
        },
    }
    reasons = {
        "python": "shown as code, but never run: write it as ```python, at column 0",
        "text": "shown as an output, but compared with nothing: mark it as one",
        "py": "shown as a listing, but not what the source file says",
        "js": "shown as a listing, but not what the source file says",
    }
    problems: list[Problem] = []
    for block in shown:
        if block.language in INERT_LANGUAGES:
            continue
        if block.language not in wanted:
            reason = "shown as code, but not in a form that a page may use"
            problems.append(Problem(page.path, _find(page, block.text), reason))
            continue
        queue = wanted[block.language]
        if queue and _same(queue[0][0], block.text):
            queue.pop(0)
        else:
            reason = reasons[block.language]
            problems.append(Problem(page.path, _find(page, block.text), reason))
    if not problems:
        for queue in wanted.values():
            for _, line in queue:
                reason = "this runs or is compared, but no reader sees it"
                problems.append(Problem(page.path, line, reason))
    return problems


def _same(one: str, other: str) -> bool:
    """Compare as a browser shows text: without white space at the ends, and no tabs."""
    texts = (
        [line.expandtabs(4).rstrip() for line in text.strip("\n").split("\n")]
        for text in (one, other)
    )
    return next(texts) == next(texts)


def _drawing_errors(page: Page, html: BeautifulSoup) -> list[Problem]:
    """Report the formulas, diagrams and pictures that could not be drawn."""
    refused = [
        (str(element.get("data-source", "")), element.get_text(" ", strip=True))
        for element in html.select(".book-error")
    ]
    undrawn = [
        (element.get_text(), "diagram not drawn: run make diagrams")
        for element in html.select("[data-undrawn]")
    ]
    return [
        Problem(page.path, _find(page, source), reason)
        for source, reason in refused + undrawn
    ]


def _images(page: Page, html: BeautifulSoup) -> list[Problem]:
    """Accept only pictures that a block of this page can draw."""
    problems: list[Problem] = []
    stem = PurePosixPath(page.path).stem
    for image in page.images:
        target = PurePosixPath(image.target)
        *above, assets, figures, folder = ("", "", "", *target.parent.parts)
        inside = (assets, figures, folder) == ("assets", "figures", stem)
        if not inside or not set(above) <= {"", ".."}:
            reason = f"pictures of this page lie in assets/figures/{stem}/"
            problems.append(Problem(page.path, image.line, reason))
        if not image.alt.strip():
            reason = "no text alternative: describe the picture in the brackets"
            problems.append(Problem(page.path, image.line, reason))
        elif len(image.alt.split()) < _ENOUGH:
            reason = "this text alternative does not describe the picture: say more"
            problems.append(Problem(page.path, image.line, reason))
    shown = len(html.select("figure.figure, .book-error"))
    if not problems and shown < len(page.images):
        reason = "a picture is written here and not shown"
        problems.append(Problem(page.path, page.images[0].line, reason))
    return problems


def _leftovers(page: Page, html: BeautifulSoup) -> list[Problem]:
    """Find remains of broken Markdown in the text that a reader sees."""
    for element in html.select("pre, code, svg, .katex, .book-error, .mermaid"):
        element.decompose()
    problems: list[Problem] = []
    for element in html.find_all(_TEXT):
        text = element.get_text()
        for form, pattern in _LEFTOVERS.items():
            found = pattern.search(text)
            if found and not _inside(element, pattern):
                excerpt = _excerpt(text, found.start())
                reason = f"left undrawn: {form} ({excerpt}): close it, or fix it"
                line = _find(page, text[found.start() :] or text)
                problems.append(Problem(page.path, line, reason))
    return problems


def _inside(element: Tag, pattern: re.Pattern[str]) -> bool:
    """Return whether a block inside this one has the remains and will be reported."""
    return any(
        pattern.search(inner.get_text())
        for inner in element.find_all(["p", "li", "td", "th"])
    )


def _excerpt(text: str, start: int) -> str:
    return " ".join(text[start : start + 30].split())


def _find(page: Page, text: str) -> int:
    """Return the line of the page on which a shown text begins; 1 if it is not found.

    The whole text is searched for first, line by line, then less and less of it.
    """
    wanted = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line.strip() for line in page.lines]
    for count in range(len(wanted), 0, -1):
        for index in range(len(lines)):
            if lines[index : index + count] == wanted[:count]:
                return index + 1
    for line in wanted[:1]:
        for index, there in enumerate(lines):
            if line in there:
                return index + 1
    return 1
