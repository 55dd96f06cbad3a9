"""Hold names and formulas in an entry of the glossary against the sections it links to.

No run stands behind a glossary. What an entry calls by a name of the code is explained
where its links lead, and there that name is used; what it computes is computed there.
"""

import contextlib
import re
from functools import cache
from pathlib import Path

from bookbinder.formulas.alone import Held, says_something
from bookbinder.formulas.statements import read_statements
from bookbinder.formulas.terms import Statement
from bookbinder.names.links import anchors_of
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem, load_page, read_page
from bookbinder.reading.prose import Link, formulas, links, prose_lines, spans

__all__ = ["entry_problems"]

_GLOSSARY = "docs/glossary.md"
_NAME = re.compile(r"[A-Za-z]\w+")
_HEADING = re.compile(r"#{1,6} ")


def entry_problems(page: Page, root: Path) -> list[Problem]:
    """Find names and formulas that no section linked to by their entry has."""
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
    for formula in formulas(page):
        line = page.lines[formula.line - 1]
        # The link that comes next is that which explains it.
        after = line.partition(formula.tex)[2]
        ways = [each.target for each in linked.get(formula.line, [])]
        next_one = [way for way in ways if f"]({way})" in after and "://" not in way]
        held = _held("".join(_section(way, root) for way in next_one[:1]))
        bare = [
            each.sides[0]
            for each in read_statements(formula.tex)
            if isinstance(each, Statement) and not each.signs
        ]
        if any(says_something(term) and term not in held for term in bare):
            reason = f"${formula.tex}$: the section that is linked to next has it not"
            problems.append(Problem(page.path, formula.line, reason))
    return problems


@cache
def _held(text: str) -> Held:
    """Give what a section has behind its formulas: all of them, and its code."""
    section = read_page(text, _GLOSSARY)
    stated = [
        each for formula in formulas(section) for each in read_statements(formula.tex)
    ]
    return Held(stated, (block.code for block in section.blocks))


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
