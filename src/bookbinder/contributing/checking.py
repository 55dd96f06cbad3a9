"""Check one page: all that the tests and make lint ask of it.

What has to be imported is imported once. Then each chain and each check runs in a fork
of its own, side by side, so that nothing of it stays: not for the next chain, and not
for the next time that the page is saved.
"""

import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bookbinder.audit import audit
from bookbinder.contributing.exercising import exercise_problems
from bookbinder.contributing.linting import markdown_problems, spelling_problems
from bookbinder.contributing.placing import place_problems
from bookbinder.contributing.remembering import Key, Ran, key_of, moved_to, run
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.page import Chain, Page, Problem, load_page
from bookbinder.running.forking import each_in_a_fork

__all__ = ["Checker"]

_SECONDS = 600.0  # of processor time: a page may train a model


@dataclass
class Checker:
    """Checks pages of a repository, and remembers what their chains did."""

    root: Path
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    ran: dict[Key, Ran] = field(default_factory=dict[Key, Ran])

    def check(self, file: Path) -> list[Problem]:
        """Give all that is wrong with a page, from its first line to its last."""
        page = load_page(file, self.root)
        # What does not read does not run either.
        chains = [] if page.problems else page.chains
        asked = {key_of(chain): chain for chain in chains}
        new = {key: chain for key, chain in asked.items() if key not in self.ran}
        problems = self._at_once(
            page,
            new,
            partial(audit, page, self.root),
            partial(markdown_problems, page.path, self.root),
            partial(spelling_problems, page.path, self.root),
            partial(place_problems, page, self.root),
            partial(exercise_problems, page),
        )
        runs = [moved_to(self.ran[key_of(chain)], chain) for chain in chains]
        for ran, chain in zip(runs, chains, strict=True):
            problem = ran.problem(page, chain)
            problems += [problem] if problem else []
        # Behind what broke a run off, everything would be found missing.
        if not page.problems and not any(ran.error for ran in runs):
            evidence = _gathered(ran.evidence for ran in runs)
            judge = partial(evidence_problems, page, evidence, self.root)
            problems += self._at_once(page, {}, judge)
        return sorted(set(problems), key=lambda problem: (problem.line, problem.reason))

    def _at_once(
        self,
        page: Page,
        chains: dict[Key, Chain],
        *checks: Callable[[], list[Problem]],
    ) -> list[Problem]:
        """Run chains, which are remembered, and checks; give what the checks find."""
        runs = [
            (key, partial(run, page, chain, self.root), _SECONDS)
            for key, chain in chains.items()
        ]
        asked = [((), partial(_found, page, check), _SECONDS) for check in checks]
        problems: list[Problem] = []
        for key, outcome in each_in_a_fork([*runs, *asked], self.jobs):
            if key:
                died = Problem(page.path, chains[key].line, f"died of {outcome.died}")
                self.ran[key] = outcome.value or Ran.broken(chains[key], died)
            elif outcome.died:
                problems.append(Problem(page.path, 1, f"a check died: {outcome.died}"))
            else:
                problems += outcome.value
        return problems


def _found(page: Page, check: Callable[[], list[Problem]]) -> list[Problem]:
    """Make a check; one that cannot be made is a problem, too."""
    try:
        return check()
    except Exception as error:
        *_, place = traceback.extract_tb(error.__traceback__)
        reason = (
            f"not checked: {type(error).__name__}: {error} "
            f"({Path(place.filename).name}:{place.lineno}): the check itself broke: "
            "take back what you wrote last, and report it with this line"
        )
        return [Problem(page.path, 1, reason)]


def _gathered(runs: Iterable[Evidence]) -> Evidence:
    """Put together what the chains of a page left behind."""
    every = Evidence()
    for one in runs:
        every.chains |= one.chains
        every.lines |= one.lines
        every.drawn |= one.drawn
        every.seen |= one.seen
        for kind, found in vars(one.notes).items():
            getattr(every.notes, kind).update(found)
        for file, places in one.idle.items():
            every.idle[file] = every.idle.get(file, places) & places
    return every
