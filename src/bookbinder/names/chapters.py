"""What file a new chapter gets: the next number, and its title in small letters."""

import re
from pathlib import Path

from pymdownx.slugs import slugify

__all__ = ["chapter_path", "slug_of"]

_NUMBERED = re.compile(r"(\d\d)-[\w-]+\.md")


def chapter_path(title: str, root: Path) -> str:
    """Give the path, from the root, of a chapter that is not there yet."""
    names = [file.name for file in (root / "docs/chapters").glob("*.md")]
    found = [int(match[1]) for match in map(_NUMBERED.fullmatch, names) if match]
    return f"docs/chapters/{max(found, default=0) + 1:02}-{slug_of(title)}.md"


def slug_of(title: str) -> str:
    """Give a title as the name of a file: small letters and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", slugify(case="lower")(title, "-")).strip("-")
