"""What a chain of blocks did, kept so that an edit of the prose does not run it again.

An edit moves blocks up and down their page, and whatever a run left behind names lines
of the page. So a run is kept with the lines that its blocks had, and moved to those
that they have when it is asked for again.
"""

import builtins
import tomllib
import warnings
from bisect import bisect_right
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bookbinder.evidence import Evidence
from bookbinder.reading.bindings import Notes, note_code
from bookbinder.page import Chain, Page, Problem
from bookbinder.page import Block
from bookbinder.running.blocks import compare, explain, run_chain

__all__ = ["Key", "Ran", "key_of", "moved_to", "run"]

Key = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Ran:
    """A run of one chain; all its lines are those that the page had then.

    Args:
        blocks: The lines of the blocks' fences.
        bound: The lines of the comments that were evaluated behind the blocks.
        printed: All that was printed.
        evidence: What the run left behind.
        error: What broke it off, if anything did.
    """

    blocks: tuple[int, ...]
    bound: tuple[int, ...]
    printed: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    error: Problem | None = None

    @classmethod
    def broken(cls, chain: Chain, error: Problem) -> "Ran":
        """Give a run of which nothing is known but what ended it."""
        return cls(*_lines(chain), error=error)

    def problem(self, page: Page, chain: Chain) -> Problem | None:
        """Give what is wrong with the run itself, or with what is shown of it."""
        return self.error or compare(page, chain, self.printed)


def key_of(chain: Chain) -> Key:
    """Give all that a run of a chain depends on, wherever it stands on its page."""
    return tuple((block.code, tuple(_asked(block).values())) for block in chain.blocks)


def run(page: Page, chain: Chain, root: Path) -> Ran:
    """Run a chain as the tests do."""
    evidence, printed, error = Evidence(), "", None
    try:
        with _warned_as_in_tests(root), evidence.gathered(chain, root):
            printed = run_chain(chain)
    except KeyboardInterrupt:
        raise
    except BaseException as caught:
        error = explain(page, chain, caught)
    return Ran(*_lines(chain), printed, evidence, error)


def moved_to(ran: Ran, chain: Chain) -> Ran:
    """Move a run to where its chain stands now."""
    blocks, bound = _lines(chain)
    if (blocks, bound) == (ran.blocks, ran.bound):
        return ran

    def moved(line: int) -> int:
        above = max(bisect_right(ran.blocks, line) - 1, 0)
        return line + blocks[above] - ran.blocks[above]

    places = dict(zip(ran.bound, bound, strict=True))
    evidence = replace(
        ran.evidence,
        chains={chain.line},
        lines=_moved_lines(ran.evidence.lines, moved),
        notes=_moved_notes(ran.evidence.notes, places),
        seen={
            chain.line: [
                # The lines of the chain itself are counted from 1, wherever they stand.
                replace(each, line=moved(each.line) if each.line > 1 else 1)
                for found in ran.evidence.seen.values()
                for each in found
            ]
        },
    )
    error = ran.error and replace(ran.error, line=moved(ran.error.line))
    return Ran(blocks, bound, ran.printed, evidence, error)


def _moved_lines(
    lines: set[tuple[str, int]], moved: Callable[[int], int]
) -> set[tuple[str, int]]:
    """Move the lines of the page; those of the library stay where they are."""
    return {
        (file, moved(line) if file.startswith("<string>") else line)
        for file, line in lines
    }


def _moved_notes(notes: Notes, places: dict[int, int]) -> Notes:
    """Move what was noted, of each kind by the line of its comment."""
    moved = {
        kind: {places[line]: value for line, value in found.items()}
        for kind, found in vars(notes).items()
    }
    return Notes(**moved)


def _lines(chain: Chain) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bound = (line for block in chain.blocks for line in _asked(block))
    return tuple(block.line for block in chain.blocks), tuple(bound)


def _asked(block: Block) -> dict[int, str]:
    """Give the expressions that are evaluated behind a block, by their lines."""
    return {each.line: each.why for each in block.bindings if note_code([each])}


@contextmanager
def _warned_as_in_tests(root: Path) -> Generator[None]:
    """Treat warnings as the settings of the tests say."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    with warnings.catch_warnings():
        for line in project["tool"]["pytest"]["ini_options"]["filterwarnings"]:
            action, _, rest = line.partition(":")
            message, _, category = rest.partition(":")
            kind = getattr(builtins, category or "Warning")
            warnings.filterwarnings(action, message, kind)
        yield
