"""Hold every link and citation of a page against where it leads.

A link leads to a page and a heading that are there, and says so: its words share one
with the title or heading, or else its sentence does. What a page cites by name and
year stands under its sources.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from pymdownx.slugs import slugify

from bookbinder.names.nearness import nearer, sections_of
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem, read_page, split_lines
from bookbinder.reading.prose import Link, links, prose_lines

__all__ = ["anchors_of", "link_problems"]

_HEADING = re.compile(r"#{1,6} (?P<text>.+)")
_MARKS = re.compile(r"[`*]|\]\([^)]*\)|\[")
_WORD = re.compile(r"[A-Za-z]+")
_ENDING = re.compile(r"(?:ing|ed|er|ie|e|d|y)$")
_SMALL = {
    *("a", "about", "above", "all", "an", "and", "are", "as", "at", "be", "below"),
    *("by", "can", "do", "does", "for", "from", "goes", "has", "have", "how", "in"),
    *("into", "is", "it", "its", "no", "not", "of", "on", "one", "or", "should"),
    *("that", "the", "their", "they", "this", "those", "to", "two", "up", "was"),
    *("what", "when", "where", "which", "who", "why", "with", "you", "your"),
}
_GITHUB = re.compile(
    r"https://github\.com/(?P<repo>[\w.-]+/[\w.-]+)(?:/(?:issues|pull)/(?P<number>\d+))?"
)
_CITED = re.compile(
    r"(?P<name>[A-Z][a-z]+[\w'’-]*)(?: et al\.| and (?:[A-Z][\w.]* )*[A-Z][\w'’-]+)?"
    r"(?:,? \((?P<in>(?:19|20)\d\d)[),]|, (?P<after>(?:19|20)\d\d)\b)"
)


def link_problems(page: Page, root: Path) -> list[Problem]:
    """Find links that lead nowhere or elsewhere than they say, and missing sources."""
    lines = dict(prose_lines(page))
    every = [*links(page)]
    problems: list[Problem] = []
    for link in every:
        if "://" in link.target:
            reason = _wrong_address(link, every, lines)
        else:
            reason = _wrong_target(link, lines[link.line], page, root)
        if reason:
            text = f"[{link.text}]({link.target}): {reason}"
            problems.append(Problem(page.path, link.line, text))
    problems += [
        Problem(page.path, line, reason) for line, reason in _uncited(page, lines)
    ]
    return problems


def anchors_of(text: str) -> dict[str, str]:
    """Give the headings of a page's text by their anchors; the title's is empty."""
    anchors: dict[str, str] = {}
    slug = slugify(case="lower")
    for _, line in prose_lines(Page("", split_lines(text))):
        heading = _HEADING.fullmatch(line)
        if not heading:
            continue
        words = _MARKS.sub("", heading["text"])
        anchors.setdefault("", words)
        name, again = slug(words, "-"), 0
        while (name if not again else f"{name}_{again}") in anchors:
            again += 1
        anchors[name if not again else f"{name}_{again}"] = words
    return anchors


def _wrong_target(link: Link, line: str, page: Page, root: Path) -> str | None:
    path, _, anchor = link.target.partition("#")
    here = root / page.path
    file = (here.parent / path).resolve() if path else here
    if path and not file.is_file():
        return f"there is no such file: {_instead(path, here.parent, root)}"
    if file.suffix != ".md":
        return None
    # The page itself may lie elsewhere, as those do that are broken on purpose.
    text = file.read_text(encoding="utf-8") if path else "\n".join(page.lines)
    anchors = anchors_of(text)
    if anchor not in anchors:
        return f"{file.name} has no heading {anchor!r}"
    wanted = anchors[anchor]
    said = _significant(link.text)
    if "`" in link.text and not said & _significant(wanted):
        name = link.text.strip("`")
        listed = _quoted(text, anchor, root)
        if re.search(rf"(?:def|class) {re.escape(name)}\b", listed):
            return None
        # What is not the library's cannot be listed; it is spoken of.
        theirs = "." in name and name in text
        return None if theirs else f"{file.name} lists no {name}"
    if not said & _significant(wanted):
        return f"no word of it is one of {wanted!r}"
    others = {*(anchors if anchor else _titles(root)).values()} - {anchors[""]}
    nearest = max({*others, wanted}, key=lambda other: len(_significant(other) & said))
    if len(_significant(nearest) & said) > len(_significant(wanted) & said):
        return f"its words are nearer to {nearest!r} than to {wanted!r}"
    return _beside(link, line, anchor, anchors, text) if anchor else None


def _beside(
    link: Link, line: str, anchor: str, anchors: dict[str, str], text: str
) -> str | None:
    """Find another heading with as many words of a link, and more of its sentence."""
    said = _significant(link.text)

    def fits(name: str) -> tuple[int, float]:
        heading = _significant(anchors[name])
        return len(heading & said), len(heading & said) / max(len(heading), 1)

    here = fits(anchor)
    alike = [
        name
        for name in anchors
        if name != anchor
        and anchors[name] != anchors[""]
        and fits(name)[0] == here[0]
        and fits(name)[1] >= here[1]
    ]
    if not alike:
        return None
    sections = sections_of(text, anchors, _significant)
    found = nearer(line, link.target, anchor, alike, sections, _significant)
    return (
        found
        and f"its sentence is nearer to {anchors[found]!r} than to {anchors[anchor]!r}"
    )


def _instead(path: str, here: Path, root: Path) -> str:
    """Give the page that may have been meant, or how a link is written."""
    if not path.startswith("/"):
        pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
        known = [os.path.relpath(page, here) for page in pages]
        if near := get_close_matches(path, known, n=1):
            return f"{near[0]}?"
    return "a link begins at the folder of its page, as ../notation.md does"


def _quoted(text: str, anchor: str, root: Path) -> str:
    """Give what the listings of a page quote, or those below one of its headings."""
    headings = [line for line in text.split("\n") if _HEADING.fullmatch(line)]
    if anchor:
        name = anchors_of(text)[anchor]
        start = next(
            (line for line in headings if _MARKS.sub("", line).endswith(f" {name}")), ""
        )
        text = text.partition(f"\n{start}\n")[2]
        text = re.split(r"^#{1,3} ", text, maxsplit=1, flags=re.MULTILINE)[0]
    found: list[str] = []
    for listing in read_page(text, "").listings:
        with contextlib.suppress(ListingError):
            found.append(find_section(root, listing.path, listing.section).text)
    return "\n".join(found)


@cache
def _titles(root: Path) -> dict[str, str]:
    return {
        file.name: anchors_of(file.read_text(encoding="utf-8")).get("", "")
        for file in sorted((root / "docs").rglob("*.md"))
    }


def _significant(text: str) -> set[str]:
    """Give the words that say something, without their endings."""
    words = {word.lower() for word in _WORD.findall(text)} - _SMALL
    stems = {_ENDING.sub("", word.removesuffix("s")) for word in words}
    return {stem.rstrip("s") for stem in stems if len(stem) > 1}


def _wrong_address(link: Link, every: list[Link], lines: dict[int, str]) -> str | None:
    """Ask of an address outside that the page names where it leads."""
    parts = urlsplit(link.target)
    if parts.scheme != "https" or "." not in parts.netloc:
        return "not an address that begins https://"
    found = _GITHUB.fullmatch(link.target)
    if not found:
        outside = parts.netloc != "github.com"
        return None if outside else "neither a repository nor an issue"
    number = found["number"]
    said = re.search(r"(?:#|issue )(\d+)", link.text)
    if said and said[1] != number:
        return f"the text says {said[0]}"
    names = [found["repo"], *found["repo"].split("/")]
    for other in every:
        # The repository may be named in front of the link.
        line = re.sub(r"\]\([^)]*\)", "]", lines[other.line]).replace(" ", "-").lower()
        named = any(name.lower() in line for name in names)
        numbered = not number or re.search(rf"(?:#|issue ){number}\b", other.text)
        if other.target == link.target and named and numbered:
            return None
    wanted = found["repo"].split("/")[1] + (f" #{number}" if number else "")
    return f"this page never calls it {wanted}"


def _uncited(page: Page, lines: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Find works that are cited by name and year, and stand under no source."""
    begin = next((n for n, line in lines.items() if line == "## Sources"), None)
    if begin is None:
        return
    sources = [line for number, line in lines.items() if number > begin]
    for number, line in lines.items():
        if number >= begin:
            return
        for found in _CITED.finditer(line):
            year = found["in"] or found["after"]
            if not any(
                found["name"] in source and year in source for source in sources
            ):
                yield number, f"{found[0].strip(' ,(')}: not among the sources"
