"""The evidence of a page's blocks: lines that ran, and pictures that were drawn."""

import contextlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bookbinder.listings import (
    ListingError,
    find_section,
    idle_statements,
    never_executed,
)
from bookbinder.page import Chain, Page, Problem
from bookbinder.running.blocks import explain, program, run_chain
from bookbinder.running.figures import compare_figures
from bookbinder.running.lines import PAGE, Lines, recorded_lines
from bookbinder.running.scripts import Idle, never_run, recorded_scripts
from bookbinder.running.state import CHECKED, fresh_state

__all__ = ["Evidence", "evidence_problems"]


@dataclass
class Evidence:
    """What the chains of one page have done so far.

    ``lines`` has every line that ran, with the line of the page that first ran it;
    ``drawn`` has the pictures by name; ``idle`` has the parts of scripts that never
    ran.
    """

    page: Page
    root: Path
    chains: set[int] = field(default_factory=set[int])
    lines: Lines = field(default_factory=Lines)
    drawn: dict[str, str] = field(default_factory=dict[str, str])
    idle: Idle = field(default_factory=Idle)

    @contextmanager
    def gathered(self, chain: Chain, seed: int = CHECKED) -> Generator[None]:
        """Run the ``with`` block in a fresh state, and record its evidence."""
        files = {str(self.root / listing.path) for listing in self.page.listings}
        lines = Lines()
        with fresh_state(seed) as folder:
            try:
                with recorded_lines(files) as lines, recorded_scripts(self.idle):
                    yield
            finally:
                self.chains.add(chain.line)
                for place, line in lines.items():
                    self.lines[place] = min(line, self.lines.get(place, line))
                self.drawn |= _drawings(folder)


def _drawings(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.svg")):
        with contextlib.suppress(UnicodeDecodeError):
            found[file.name] = file.read_text(encoding="utf-8")
    return found


def evidence_problems(evidence: Evidence) -> list[Problem]:
    """Return a problem for each line or picture that the page shows without evidence.

    Chains that have not run yet, because a test run did not select them, run here.
    """
    page = evidence.page
    for chain in page.chains:
        if chain.line not in evidence.chains:
            try:
                with evidence.gathered(chain):
                    run_chain(chain)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return [explain(page, chain, error)]
    problems = [*_idle_code(evidence), *_idle_listings(evidence)]
    return problems + compare_figures(page, evidence.drawn, evidence.root)


def _idle_code(evidence: Evidence) -> Iterator[Problem]:
    for chain in evidence.page.chains:
        for line in idle_statements(
            program(chain), PAGE, evidence.lines.keys(), everywhere=True
        ):
            reason = "this line never runs: run it, or take it out"
            yield Problem(evidence.page.path, line, reason)


def _idle_listings(evidence: Evidence) -> Iterator[Problem]:
    for listing in evidence.page.listings:
        try:
            section = find_section(evidence.root, listing.path, listing.section)
        except ListingError:
            continue  # The audit reports it.
        idle = (
            never_run(section, evidence.idle)
            if listing.language == "js"
            else never_executed(section, evidence.lines.keys())
        )
        for line in idle:
            reason = (
                f"lists {listing.path}:{line}, but no block of this page executes it: "
                "run it here, or list a smaller section"
            )
            yield Problem(evidence.page.path, listing.line, reason)
