"""What a test run found of a page, kept until the page or what it runs on changes.

The run that verified a page writes its record, when everything that the tests ask of
the page has passed. Whoever shows it asks for a fresh one: a record of another text, or
of another library, is none.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from platform import python_version

from bookbinder.writing import write_whole
from bookbinder.listings import Section, find_section, idle_statements
from bookbinder.page import Page

__all__ = [
    "Quoted",
    "Record",
    "Span",
    "digest_of",
    "foundations",
    "fresh_record",
    "make_record",
    "record_file",
    "write_record",
]

# What the pages stand on, beside their own text.
_FOUNDATIONS = (
    *("src", "benchmarks/results", "constraints.txt"),
    *("docs/assets/figures", "docs/assets/js", "docs/assets/models"),
)


@dataclass(frozen=True)
class Span:
    """Lines of a listing, counted from 1, and the block that ran them first."""

    first: int
    last: int
    block: int


@dataclass(frozen=True)
class Quoted:
    """A listing: the line of its fence, how many lines it shows, and who ran them."""

    line: int
    lines: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Record:
    """What was found of a page, by what, and when.

    Args:
        digest: Of the page's text and of what it stands on.
        blocks: How many blocks ran.
        outputs: How many outputs were compared.
        listings: The listings, in the order of the page.
        torch: The version of PyTorch.
        python: The version of Python.
        date: The day, as 2026-11-21, in UTC.
        commit: The commit that the tree was at, "" if it is in no repository.
        changed: Whether the tree differed from that commit.
    """

    digest: str
    blocks: int
    outputs: int
    listings: tuple[Quoted, ...]
    torch: str
    python: str
    date: str
    commit: str
    changed: bool

    @property
    def lines(self) -> int:
        """How many lines of source the page lists."""
        return sum(quoted.lines for quoted in self.listings)


def record_file(root: Path, path: str) -> Path:
    """Give the place of a page's record."""
    return (root / ".cache" / "verified" / path).with_suffix(".json")


def fresh_record(root: Path, page: Page, standing_on: str) -> Record | None:
    """Read a page's record, if it is of this text and of what it stands on.

    Args:
        root: The repository.
        page: The page.
        standing_on: The digest of what all pages stand on, from ``foundations``.
    """
    try:
        found = json.loads(record_file(root, page.path).read_text("utf-8"))
        listings = tuple(
            Quoted(each["line"], each["lines"], tuple(Span(**s) for s in each["spans"]))
            for each in found.pop("listings")
        )
        record = Record(listings=listings, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return record if record.digest == digest_of(page, standing_on) else None


def make_record(
    page: Page, first: Mapping[tuple[str, int], int], root: Path, standing_on: str
) -> Record:
    """Write down what was found of a page that has passed.

    Args:
        page: The page.
        first: For each line of a source file, as (file, line), the line of the page
            from which it was run first.
        root: The repository.
        standing_on: What ``foundations`` gave before the run.
    """
    commit, changed = _commit(root)
    return Record(
        digest=digest_of(page, standing_on),
        blocks=len(page.blocks),
        outputs=sum(block.output is not None for block in page.blocks),
        listings=tuple(_quotations(page, first, root)),
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


def digest_of(page: Page, standing_on: str) -> str:
    """Give the digest of a page's text and of what it stands on."""
    text = "\n".join([standing_on, *page.lines])
    return hashlib.sha256(text.encode()).hexdigest()


def foundations(root: Path) -> str:
    """Give the digest of what all pages stand on: library, tools, models, versions."""
    digest = hashlib.sha256()
    for file in _files(root):
        data = file.read_bytes()
        name = file.relative_to(root).as_posix()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for name in _FOUNDATIONS:
        place = root / name
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (
            file for file in found if file.is_file() and "__pycache__" not in file.parts
        )


@cache
def _commit(root: Path) -> tuple[str, bool]:
    """Give the commit that a tree is at, and whether it differs from it."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # A folder without a repository may lie inside another's.
    top = git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():
        return "", False
    return git("rev-parse", "HEAD") or "", bool(git("status", "--porcelain"))


def _quotations(
    page: Page, first: Mapping[tuple[str, int], int], root: Path
) -> Iterator[Quoted]:
    ends = [block.end for block in page.blocks]
    for listing in page.listings:
        section = find_section(root, listing.path, listing.section)
        numbers = _shown_lines(section)
        ran: list[tuple[int, int]] = []
        starts = _statements(section) if listing.language == "py" else []
        for start, after in pairwise([*starts, section.last + 1]):
            # Of a statement over several lines, any may be the first to run.
            places = ((str(section.file), line) for line in range(start, after))
            asked = [first[place] for place in places if place in first]
            if asked:
                block = sum(end < min(asked) for end in ends) + 1
                ran.append((numbers[start], block))
        total = section.text.strip("\n").count("\n") + 1
        yield Quoted(listing.line, total, tuple(_spans(ran, total)))


def _statements(section: Section) -> list[int]:
    """Give the first line of each statement of a section that only runs if called."""
    source = section.file.read_text("utf-8")
    lines = idle_statements(source, str(section.file), frozenset[tuple[str, int]]())
    return [line for line in lines if section.first <= line <= section.last]


def _shown_lines(section: Section) -> dict[int, int]:
    """Give for each line of the file that a section shows its number in the listing."""
    lines = section.file.read_text("utf-8").splitlines()
    shown = [
        number
        for number in range(section.first, section.last + 1)
        if " --8<-- [" not in lines[number - 1]
    ]
    return {number: place for place, number in enumerate(shown, start=1)}


def _spans(ran: list[tuple[int, int]], total: int) -> Iterator[Span]:
    """Join statements that stand together and were first run by one block.

    What lies before the first of them, a signature and its docstring, goes with it;
    so does what lies between a statement and the next.
    """
    start = 1
    for index, (_, block) in enumerate(ran):
        after = ran[index + 1] if index + 1 < len(ran) else None
        if after is None or after[1] != block:
            last = after[0] - 1 if after else total
            yield Span(start, last, block)
            start = last + 1
