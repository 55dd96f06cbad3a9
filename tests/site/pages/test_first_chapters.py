"""The chapters up to the eleventh, opened in a browser and found without fault.

Most formulas and diagrams of the book stand in them: they take as long as all others.
"""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(
    page.relative_to(DOCS).as_posix()
    for page in DOCS.glob("chapters/[01]*.md")
    if page.name < "12"
)


@pytest.mark.browser
@pytest.mark.parametrize("visit", PAGES, indirect=True, scope="module")
@pytest.mark.parametrize("what", ["fault", "barrier", "weight", "copy"])
def test_page_has_no(what: str, visit: dict[str, list[str]]) -> None:
    assert not visit[what], "\n".join(visit[what])
