"""Pages with a slip are run for the tests of what their code says of itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.reading.pages import Page, read_page
from bookbinder.reading.seen import Seen
from bookbinder.running.blocks import run_chain

ROOT = Path(__file__).parents[3]

Slipped = Callable[[str, str], tuple[Page, dict[int, list[Seen]]]]


@pytest.fixture
def slipped(request: pytest.FixtureRequest) -> Slipped:
    """Change one place of what a file calls ``PAGE``, and run it."""

    def run(right: str, wrong: str) -> tuple[Page, dict[int, list[Seen]]]:
        text = request.module.PAGE
        assert text.count(right) == 1, right
        page, evidence = read_page(text.replace(right, wrong), "page.md"), Evidence()
        assert page.problems == []
        for chain in page.chains:
            with evidence.gathered(chain, ROOT):
                run_chain(chain)
        return page, evidence.seen

    return run
