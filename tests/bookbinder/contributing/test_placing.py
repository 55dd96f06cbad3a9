"""A page has its place: in the navigation, in the list of chapters, by its title."""

from pathlib import Path

import pytest

from bookbinder.contributing.placing import place_problems, titles
from bookbinder.page import load_page

ROOT = Path(__file__).parents[3]
NAV = """\
site_name: A book
nav:
  - Home: index.md
  - Part:
      - A chapter: chapters/01-a-chapter.md
      - Another: chapters/02-another.md
  - text: reference/text.md
"""
INDEX = "# A book\n\n[A chapter](chapters/01-a-chapter.md)\n"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of two chapters, of which its front page lists one."""
    (tmp_path / "docs/chapters").mkdir(parents=True)
    (tmp_path / "docs/reference").mkdir()
    (tmp_path / "mkdocs.yml").write_text(NAV)
    (tmp_path / "docs/index.md").write_text(INDEX)
    (tmp_path / "docs/chapters/01-a-chapter.md").write_text("# A chapter\n")
    (tmp_path / "docs/chapters/02-another.md").write_text("# Another, longer\n")
    return tmp_path


def problems(book: Path, path: str, text: str | None = None) -> list[str]:
    if text is not None:
        (book / path).write_text(text)
    return [str(each) for each in place_problems(load_page(book / path, book), book)]


def test_a_page_in_its_place_is_accepted(book: Path) -> None:
    assert problems(book, "docs/chapters/01-a-chapter.md") == []
    assert problems(book, "docs/index.md") == []
    assert problems(book, "README.md", "Words.\n") == []


def test_a_chapter_that_the_front_page_does_not_list_is_told(book: Path) -> None:
    assert problems(book, "docs/chapters/02-another.md") == [
        "docs/chapters/02-another.md:1: docs/index.md does not list this chapter: add "
        "the row '| [Another, longer](chapters/02-another.md) | its question |'"
    ]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (
            "docs/new.md",
            "\n# New\n",
            "2: no entry of the navigation leads here: add the line '- New: new.md' "
            "where it belongs under nav in mkdocs.yml",
        ),
        ("docs/new.md", "Words.\n", "1: a page begins with its title: # The title"),
        (
            "docs/chapters/01-a-chapter.md",
            "# Something else\n",
            "1: mkdocs.yml calls this page 'A chapter': let both begin alike",
        ),
        (
            "docs/reference/text.md",
            "# tokens\n",
            "1: mkdocs.yml calls this page 'text': let both begin alike",
        ),
        (
            "docs/chapters/01-a-chapter.md",
            "# another, longer\n",
            "1: docs/chapters/02-another.md has this title too: give this page another",
        ),
        (
            "docs/chapters/02-second.md",
            "# Second\n",
            "1: 02-another.md has the same number: take the next one",
        ),
    ],
)
def test_a_page_out_of_its_place_is_told(
    path: str, text: str, reason: str, book: Path
) -> None:
    assert f"{path}:{reason}" in problems(book, path, text)


def test_a_page_may_be_kept_out_of_the_navigation_on_purpose(book: Path) -> None:
    (book / "mkdocs.yml").write_text(NAV + "not_in_nav: |\n  /new.md\n")
    assert problems(book, "docs/new.md", "# New\n") == []


def test_every_page_of_this_book_has_its_place() -> None:
    pages = [load_page(ROOT / path, ROOT) for path in titles(ROOT)]
    assert len(pages) > 25
    assert [str(p) for page in pages for p in place_problems(page, ROOT)] == []
