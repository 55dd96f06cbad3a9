"""List the pages whose text a change affects, for its pull request.

``compare`` runs together with the pull request's own, untrusted code and prints a line
for each page. ``comment`` runs where comments can be written: it makes a table of those
lines, and accepts only names of pages and numbers. It needs only the standard library,
so that nothing has to be installed there.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["comment", "compare"]

# A line: a page, the number of its new words, and the number of removed ones.
_LINE = re.compile(r"([A-Za-z0-9][\w./-]{0,99}) (\d{1,7}) (\d{1,7})", re.ASCII)
# Generated parts of an article: which run verified the page.
_MADE = ".ran, .published"


def compare(before: Path, after: Path) -> Iterator[str]:
    """Yield a line for each page whose text differs between two built sites."""
    pages = {
        page.relative_to(site)
        for site in (before, after)
        for page in site.rglob("index.html")
    }
    for page in sorted(pages):
        old, new = _words(before / page), _words(after / page)
        if old != new:
            same = difflib.SequenceMatcher(None, old, new).get_matching_blocks()
            kept = sum(block.size for block in same)
            name = page.parent.as_posix() if page.parent.name else "home"
            yield f"{name} {len(new) - kept} {len(old) - kept}"


def _words(page: Path) -> list[str]:
    from bs4 import BeautifulSoup

    text = page.read_text("utf-8") if page.is_file() else ""
    article = BeautifulSoup(text, "html.parser").article
    if article is None:
        return []
    for made in article.select(_MADE):
        made.decompose()
    for image in article("img"):
        image.replace_with(f" {image.get('alt', '')} ")
    return article.get_text(" ").split()


def comment(lines: Iterable[str]) -> str:
    """Return the comment for untrusted lines.

    Raises:
        ValueError: If a line has anything but a name and two numbers.
    """
    rows: list[str] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if not found:
            raise ValueError(f"not a page and two numbers: {line[:200]!r}")
        rows.append("| `{}` | {} | {} |\n".format(*found.groups()))
    if not rows:
        return "No page has changed.\n"
    head = "| page | words that are new | words that are gone |\n|---|---|---|\n"
    return f"These pages have changed:\n\n{head}{''.join(rows)}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["compare", before, after]:
            print(*compare(Path(before), Path(after)), sep="\n")
        case ["comment", file]:
            lines = Path(file).read_text("utf-8").split("\n")
            print(comment(line for line in lines if line), end="")
        case _:
            sys.exit("usage: changes.py compare BEFORE AFTER | comment FILE")
