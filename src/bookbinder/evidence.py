"""What the blocks of a page leave behind: lines that ran, pictures that were drawn."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bookbinder.formulas.holding import formula_problems
from bookbinder.names.spoken_numbers import spoken_number_problems
from bookbinder.names.spoken_shapes import spoken_shape_problems
from bookbinder.numbers.backing import number_problems
from bookbinder.reading.bindings import Notes, noted
from bookbinder.reading.listings import (
    ListingError,
    find_section,
    idle_statements,
    never_executed,
)
from bookbinder.reading.pages import Chain, Page, Problem
from bookbinder.reading.seen import Seen, remarks
from bookbinder.running.blocks import (
    CHECKED,
    drawings,
    explain,
    fresh_state,
    program,
    recorded_lines,
    run_chain,
)
from bookbinder.running.figures import compare_figures
from bookbinder.running.halves import parts
from bookbinder.running.scripts import Idle, never_run, recorded_scripts


@dataclass
class Evidence:
    """All that the chains of one page have done so far."""

    chains: set[int] = field(default_factory=set[int])
    lines: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    # For each line that ran, the line of the page that had it run first.
    first: dict[tuple[str, int], int] = field(
        default_factory=dict[tuple[str, int], int]
    )
    drawn: dict[str, str] = field(default_factory=dict[str, str])
    idle: Idle = field(default_factory=Idle)
    notes: Notes = field(default_factory=Notes)
    # By the first line of a chain, what its functions had when they first ran.
    seen: dict[int, list[Seen]] = field(default_factory=dict[int, list[Seen]])

    @contextmanager
    def gathered(
        self, chain: Chain, root: Path, seed: int = CHECKED
    ) -> Generator[None]:
        """Give a chain a fresh state, and keep what it leaves behind."""
        asked, first = parts(program(chain)), dict[tuple[str, int], int]()
        lines, seen = set[tuple[str, int]](), list[Seen]()
        with fresh_state(seed) as folder:
            try:
                with (
                    recorded_lines(
                        root / "src", asked, first, seen, remarks(chain)
                    ) as lines,
                    noted(self.notes),
                    recorded_scripts(self.idle),
                ):
                    yield
            finally:
                self.chains.add(chain.line)
                self.lines |= lines
                self.seen[chain.line] = seen
                for place, line in first.items():
                    self.first[place] = min(line, self.first.get(place, line))
                self.drawn |= drawings(folder)


def evidence_problems(page: Page, evidence: Evidence, root: Path) -> list[Problem]:
    """Find what a page shows, lists, pictures or counts without having run it."""
    problems: list[Problem] = []
    for chain in page.chains:
        if chain.line not in evidence.chains:
            try:
                with evidence.gathered(chain, root):
                    run_chain(chain)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return [explain(page, chain, error)]
        problems += [
            Problem(page.path, line, "this line never runs: run it, or take it out")
            for line in idle_statements(
                program(chain), "<string>", evidence.lines, everywhere=True
            )
        ]
        problems += [
            Problem(page.path, part[0], what)
            for part, what in parts(program(chain)).items()
            if (f"<string>:{part[1]}", part[0]) not in evidence.lines
        ]
    for listing in page.listings:
        try:
            section = find_section(root, listing.path, listing.section)
        except ListingError:
            continue  # The audit has said so.
        problems += [
            Problem(
                page.path,
                listing.line,
                f"lists {listing.path}:{line}, but no block of this page executes it: "
                "run it here, or list a smaller section",
            )
            for line in (
                never_run(section, evidence.idle)
                if listing.language == "js"
                else never_executed(section, evidence.lines)
            )
        ]
    problems += number_problems(page, evidence.notes.values, root)
    problems += formula_problems(page, evidence.notes.terms, root)
    problems += spoken_shape_problems(page, evidence.seen)
    problems += spoken_number_problems(page, evidence.seen)
    return problems + compare_figures(page, evidence.drawn, root)
