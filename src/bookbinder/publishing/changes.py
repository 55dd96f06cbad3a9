"""``python -m bookbinder.publishing.changes BEFORE AFTER``: compare two built sites.

It prints a line for each page whose text differs: its name, the number of its new
words, and the number of removed ones.
"""

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup

# Generated parts of an article: which run verified the page.
_GENERATED = ".ran, .published"


def compare(before: Path, after: Path) -> Iterator[str]:
    """Yield a line for each page whose text differs between two built sites."""
    files = {
        file.relative_to(site)
        for site in (before, after)
        for file in site.rglob("index.html")
    }
    for file in sorted(files):
        old, new = _words(before / file), _words(after / file)
        if old != new:
            same = difflib.SequenceMatcher(None, old, new).get_matching_blocks()
            kept = sum(block.size for block in same)
            name = file.parent.as_posix() if file.parent.name else "home"
            yield f"{name} {len(new) - kept} {len(old) - kept}"


def _words(file: Path) -> list[str]:
    text = file.read_text("utf-8") if file.is_file() else ""
    article = BeautifulSoup(text, "html.parser").article
    if article is None:
        return []
    for generated in article.select(_GENERATED):
        generated.decompose()
    for image in article("img"):
        image.replace_with(f" {image.get('alt', '')} ")
    return article.get_text(" ").split()


if __name__ == "__main__":
    for line in compare(Path(sys.argv[1]), Path(sys.argv[2])):
        print(line)
