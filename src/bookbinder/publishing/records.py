"""What a test run found of a page, kept until the page or what it runs on changes.

The run that verified a page writes its record, when everything that the tests ask of
the page has passed. Whoever shows it asks for a fresh one: a record of another text, or
of another library, is none.
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

from bookbinder.listings import Section, find_section, never_executed
from bookbinder.page import Page
from bookbinder.writing import write_whole

__all__ = [
    "Record",
    "foundations",
    "fresh_record",
    "make_record",
    "record_file",
    "write_record",
]

# What the pages stand on, beside their own text.
_FOUNDATIONS = ("src", "constraints.txt", "docs/assets/figures")


@dataclass(frozen=True)
class Record:
    """What was found of a page, by what, and when.

    ``lines`` are those of the listings; ``first_run_by`` has, for each listing, the
    numbers of the blocks that ran it first. ``commit`` is "" outside a repository, and
    ``changed`` tells whether the tree differed from it.
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
    """Return the place of a page's record."""
    return (root / ".cache" / "verified" / path).with_suffix(".json")


def fresh_record(root: Path, page: Page, standing_on: str) -> Record | None:
    """Read a page's record, if it is of this text and of what it stands on."""
    try:
        record = Record(**json.loads(record_file(root, page.path).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return record if record.digest == _digest(page, standing_on) else None


def make_record(
    page: Page, first: Mapping[tuple[str, int], int], root: Path, standing_on: str
) -> Record:
    """Write down what was found of a page that has passed.

    Args:
        page: The page.
        first: The line of the page that first ran each line of source, (file, line).
        root: The repository.
        standing_on: What ``foundations`` returned before the run.
    """
    sections = [find_section(root, each.path, each.section) for each in page.listings]
    commit, changed = _commit(root)
    return Record(
        digest=_digest(page, standing_on),
        blocks=len(page.blocks),
        outputs=sum(block.output is not None for block in page.blocks),
        lines=sum(len(section.text.strip("\n").split("\n")) for section in sections),
        first_run_by=[_first_run_by(each, page, first) for each in sections],
        torch=version("torch"),
        python=python_version(),
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        changed=changed,
    )


def write_record(root: Path, page: Page, record: Record) -> None:
    """Keep a page's record."""
    text = json.dumps(asdict(record), indent=1)
    write_whole(record_file(root, page.path), text + "\n")


def _first_run_by(
    section: Section, page: Page, first: Mapping[tuple[str, int], int]
) -> list[int]:
    """Return the blocks that first ran a statement within the functions of a section.

    What stands outside of them runs when the module is imported, by whomever.
    """
    if section.file.suffix != ".py":
        return []
    inside = never_executed(section, frozenset())
    asked = {first.get((str(section.file), line), 0) for line in inside}
    return [
        number
        for number, block in enumerate(page.blocks, start=1)
        if any(block.line < line <= block.end for line in asked)
    ]


def _digest(page: Page, standing_on: str) -> str:
    return hashlib.sha256("\n".join([standing_on, *page.lines]).encode()).hexdigest()


def foundations(root: Path) -> str:
    """Return the digest of what all pages stand on: library, models, versions."""
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
    """Return the commit that a tree is at, and whether it differs from it."""
    # A folder without a repository may lie inside another's.
    if not (root / ".git").exists():
        return "", False
    git = ["git", "-C", str(root)]
    try:
        commit, changes = (
            subprocess.run([*git, *asked], capture_output=True, text=True, check=True)
            for asked in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "", False
    return commit.stdout.strip(), bool(changes.stdout)
