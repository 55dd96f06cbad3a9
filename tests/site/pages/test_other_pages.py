"""All pages but the first chapters, opened in a browser and found without fault."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(
    page.relative_to(DOCS).as_posix()
    for page in DOCS.rglob("*.md")
    if page.parent.name != "chapters" or page.name >= "12"
)


@pytest.mark.browser
@pytest.mark.parametrize("visit", PAGES, indirect=True, scope="module")
@pytest.mark.parametrize("what", ["fault", "barrier", "weight", "copy"])
def test_page_has_no(what: str, visit: dict[str, list[str]]) -> None:
    assert not visit[what], "\n".join(visit[what])


def test_every_page_is_opened_in_one_of_two_files() -> None:
    first = [page for page in DOCS.glob("chapters/*.md") if page.name < "12"]
    assert len(first) == 11
    assert len(first) + len(PAGES) == len([*DOCS.rglob("*.md")])
