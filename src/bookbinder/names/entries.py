"""Hold the names in an entry of the glossary against the sections that it links to.

No run stands behind a glossary. What an entry calls by a name of the code is explained
where its links lead, and there that name is used.
"""

import contextlib
import re
from functools import cache
from pathlib import Path

from bookbinder.names.links import anchors_of
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem, load_page
from bookbinder.reading.prose import Link, links, prose_lines, spans

__all__ = ["entry_problems"]

_GLOSSARY = "docs/glossary.md"
_NAME = re.compile(r"[A-Za-z]\w+")
_HEADING = re.compile(r"#{1,6} ")


def entry_problems(page: Page, root: Path) -> list[Problem]:
    """Find names of the glossary that no section linked to by their entry has."""
    if page.path != _GLOSSARY:
        return []
    linked: dict[int, list[Link]] = {}
    for link in links(page):
        linked.setdefault(link.line, []).append(link)
    problems: list[Problem] = []
    for span in spans(page):
        ways = [each for each in linked.get(span.line, []) if "://" not in each.target]
        said = "".join(_section(each.target, root) for each in ways)
        for name in _NAME.findall(span.text):
            if ways and not re.search(rf"\b{name}\b", said):
                reason = f"`{span.text}`: no section that this entry links to has it"
                problems.append(Problem(page.path, span.line, reason))
                break
    return problems


@cache
def _section(target: str, root: Path) -> str:
    """Give what stands under the heading that a link leads to, listings included."""
    path, _, anchor = target.partition("#")
    file = (root / _GLOSSARY).parent / path
    if not file.is_file():
        return ""  # The links are held against that.
    page = load_page(file, root)
    first, last = 1, len(page.lines)
    if anchor:
        named = anchors_of("\n".join(page.lines)).get(anchor, "")
        headings = [(n, line) for n, line in prose_lines(page) if _HEADING.match(line)]
        for number, line in headings:
            if re.sub(r"[`*]", "", line).lstrip("# ") == named:
                depth = len(line.split()[0])
                below = [n for n, other in headings if len(other.split()[0]) <= depth]
                ends = [n - 1 for n in below if n > number]
                first, last = number, min(ends, default=last)
                break
    text = "\n".join(page.lines[first - 1 : last])
    for listing in page.listings:
        if first <= listing.line <= last:
            with contextlib.suppress(ListingError):
                text += find_section(root, listing.path, listing.section).text
    return text
