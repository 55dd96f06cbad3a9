"""Records of verified pages, valid until the page or the library changes.

A test run writes the record of a page when all tests of the page have passed. The site
shows only fresh records: one of another text or another library does not count.
"""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from bookbinder.listings import Section, listed_sections, never_executed
from bookbinder.page import Page
from bookbinder.places import real_name
from bookbinder.writing import write_whole

# Files that the pages depend on, besides their own text.
_FOUNDATIONS = ("src", "constraints.txt", "docs/assets/figures")


@dataclass(frozen=True)
class Record:
    """The result of verifying a page, with versions and time.

    ``lines`` counts the lines of the listings; ``first_run_by`` has, for each listing,
    the numbers of the blocks that ran it first. ``commit`` is "" outside a repository,
    and ``changed`` says whether the tree differed from it.
    """

    digest: str
    blocks: int
    outputs: int
    lines: int
    first_run_by: list[list[int]]
    torch: str
    python: str
    date: str
    commit: str
    changed: bool


def record_file(root: Path, path: str) -> Path:
    """Return the file of a page's record."""
    return (root / ".cache" / "verified" / path).with_suffix(".json")


def fresh_record(root: Path, page: Page, standing_on: str) -> Record | None:
    """Return a page's record, if it belongs to this text and these foundations."""
    try:
        record = Record(**json.loads(record_file(root, page.path).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return record if record.digest == _digest(page, standing_on) else None


def write_record(
    root: Path, page: Page, first: Mapping[tuple[str, int], int], standing_on: str
) -> Record:
    """Write the record of a page that has passed, and return it.

    Args:
        root: The repository.
        page: The page.
        first: The line of the page that first ran each line of source, (file, line).
        standing_on: The result of ``foundations`` before the run.
    """
    sections = [section for _, section in listed_sections(page, root)]
    commit, changed = _commit(root)
    record = Record(
        digest=_digest(page, standing_on),
        blocks=len(page.blocks),
        outputs=sum(block.output is not None for block in page.blocks),
        lines=sum(len(section.text.strip("\n").split("\n")) for section in sections),
        first_run_by=[_first_run_by(section, page, first) for section in sections],
        torch=version("torch"),
        python=python_version(),
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        changed=changed,
    )
    text = json.dumps(asdict(record), indent=1)
    write_whole(record_file(root, page.path), text + "\n")
    return record


def _first_run_by(
    section: Section, page: Page, first: Mapping[tuple[str, int], int]
) -> list[int]:
    """Return the blocks that first ran a statement within the functions of a section.

    Statements outside functions run when the module is imported, by any block.
    """
    if section.file.suffix != ".py":
        return []
    inside, file = never_executed(section, frozenset()), real_name(str(section.file))
    ran_by = {first.get((file, line), 0) for line in inside}
    return [
        number
        for number, block in enumerate(page.blocks, start=1)
        if any(block.line < line <= block.end for line in ran_by)
    ]


def _digest(page: Page, standing_on: str) -> str:
    return hashlib.sha256("\n".join([standing_on, *page.lines]).encode()).hexdigest()


def foundations(root: Path) -> str:
    """Return a digest of what all pages depend on: library, models, versions."""
    digest = hashlib.sha256()
    for name in _FOUNDATIONS:
        for file in sorted([root / name, *(root / name).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                data = file.read_bytes()
                path = file.relative_to(root).as_posix()
                digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


@cache
def _commit(root: Path) -> tuple[str, bool]:
    """Return the commit of a tree, and whether the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=root, text=True).strip()

    # A folder without a repository may be inside another repository.
    if not (root / ".git").exists():
        return "", False
    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return "", False
