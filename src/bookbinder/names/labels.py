"""A page has a heading once, and a table a name: the second is a slip of the pen.

What stands at the head of a row in bold, in backticks or in a formula names that row.
Plain words may go on from the row above, as a step with several results does.
"""

import re

from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["label_problems"]

_CELL = re.compile(r"(?<!\\)\|")
_HEADING = re.compile(r"#{1,6} ")
_NAME = re.compile(r"\*\*[^*]+\*\*|`[^`]+`|\$[^$]+\$")


def label_problems(page: Page) -> list[Problem]:
    """Find headings, and rows of a table, that are called as one above them."""
    problems: list[Problem] = []
    rows: dict[str, int] = {}
    headings: dict[str, int] = {}
    for number, line in prose_lines(page):
        if _HEADING.match(line):
            words = line.lstrip("# ")
            if headings.setdefault(words, number) != number:
                reason = f"{words}: line {headings[words]} has this heading already"
                problems.append(Problem(page.path, number, reason))
        if not line.startswith("|"):
            rows = {}
            continue
        label = _CELL.split(line)[1].strip()
        if label in rows and _NAME.fullmatch(label):
            reason = f"{label}: line {rows[label]} of this table has this name already"
            problems.append(Problem(page.path, number, reason))
        rows.setdefault(label, number)
    return problems
