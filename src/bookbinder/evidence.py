"""The evidence of a page's blocks: lines that ran, and pictures that were drawn."""

import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bookbinder.listings import (
    idle_statements,
    listed_sections,
    never_executed,
    never_run,
)
from bookbinder.page import Chain, Page, PageError, Problem
from bookbinder.running.blocks import explain, printed, program
from bookbinder.running.figures import compare_figures
from bookbinder.running.recording import (
    PAGE,
    Idle,
    Lines,
    recorded_lines,
    recorded_scripts,
    run,
)
from bookbinder.running.state import CHECKED, fresh_state


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

    def run(self, chain: Chain, seed: int = CHECKED) -> list[str]:
        """Run a chain, and return what each of its blocks has printed.

        Raises:
            PageError: If a block fails; it names the line of the page.
        """
        with self.gathered(chain, seed) as outputs, redirect_stdout(io.StringIO()):
            run(program(chain), {"__MODULE__": "__main__"})
        return outputs

    @contextmanager
    def gathered(self, chain: Chain, seed: int = CHECKED) -> Generator[list[str]]:
        """Watch the program of a chain, which has to run within ``with``.

        Returns:
            What each block has printed, filled while they run.

        Raises:
            PageError: If a block fails; it names the line of the page.
        """
        files = {str(self.root / listing.path) for listing in self.page.listings}
        lines = Lines()
        outputs = list[str]()
        printed.clear()
        try:
            with fresh_state(seed) as folder:
                try:
                    with recorded_lines(files) as lines, recorded_scripts(self.idle):
                        yield outputs
                finally:
                    outputs += printed
                    self.chains.add(chain.line)
                    for place, line in lines.items():
                        self.lines[place] = min(line, self.lines.get(place, line))
                    for file in sorted(folder.glob("*.svg")):
                        with suppress(UnicodeDecodeError):
                            self.drawn[file.name] = file.read_text("utf-8")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PageError([explain(self.page, chain, error)]) from None


def evidence_problems(evidence: Evidence) -> list[Problem]:
    """Return a problem for each line or picture that the page shows without evidence.

    Chains that have not run yet, because a test run did not select them, run here.
    """
    page = evidence.page
    for chain in page.chains:
        if chain.line not in evidence.chains:
            try:
                evidence.run(chain)
            except PageError as error:
                return [*error.problems]
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
    for listing, section in listed_sections(evidence.page, evidence.root):
        idle = (
            never_run(section, evidence.idle)
            if listing.language == "js"
            else never_executed(section, evidence.lines.keys())
        )
        for line in idle:
            reason = (
                f"lists {listing.path}:{line}, but no block of this page executes "
                "it: run it here, or list a smaller section"
            )
            yield Problem(evidence.page.path, listing.line, reason)
