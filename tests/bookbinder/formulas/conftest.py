"""Pages are run for the tests of formulas, each after the run of its file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.formulas.holding import formula_problems
from bookbinder.reading.pages import read_page
from bookbinder.running.blocks import run_chain

ROOT = Path(__file__).parents[3]


@pytest.fixture
def problems(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """Run what a file calls ``RUN``, then a text; give what its formulas have wrong."""

    def asked(text: str) -> list[str]:
        page, evidence = read_page(request.module.RUN + text, "page.md"), Evidence()
        assert page.problems == []
        for chain in page.chains:
            with evidence.gathered(chain, ROOT):
                run_chain(chain)
        found = formula_problems(page, evidence.notes.terms, ROOT)
        return [f"{problem.line}: {problem.reason}" for problem in found]

    return asked
