"""A chapter is begun whole or not at all, and is right as it was begun."""

import shutil
from pathlib import Path

import pytest
import yaml

from bookbinder.chapter import TEMPLATE, ChapterError, begin
from bookbinder.check import page_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    for name in (TEMPLATE, "docs/chapters/one.md", "mkdocs.yml", "docs/index.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / TEMPLATE, tmp_path / TEMPLATE)
    (tmp_path / "docs/chapters/one.md").write_text("# One\n")
    (tmp_path / "docs/index.md").write_text("| [One](chapters/one.md) | Why? |\n")
    parts = "  - I:\n      - One: chapters/one.md\n"
    after = "  - Write:\n      - A: chapters/a-chapter-to-copy.md\n"
    nav = f"nav:\n{parts}{after}"
    (tmp_path / "mkdocs.yml").write_text(nav)
    return tmp_path


def test_a_chapter_gets_its_page_its_entry_and_its_row(book: Path) -> None:
    begin(book, "Sinks: a second look", question="Where do heads look?")
    page = (book / "docs/chapters/sinks-a-second-look.md").read_text()
    front, _, text = page.partition("\n---\n\n")
    assert front == '---\ndescription: "Where do heads look?"'
    assert text.startswith("# Sinks: a second look\n\nWhere do heads look?\n\n")
    nav = yaml.safe_load((book / "mkdocs.yml").read_text())["nav"]
    path = "chapters/sinks-a-second-look.md"
    assert nav[0]["I"][1] == {"Sinks: a second look": path}
    assert (
        (book / "docs/index.md")
        .read_text()
        .endswith(f"| [Sinks: a second look]({path}) | Where do heads look? |\n")
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", 'give a title: make chapter NAME="Attention sinks"'),
        ("One", "NAME='One': docs/chapters/one.md already exists"),
        ("A `b`", "NAME='A `b`': wanted words, without `"),
    ],
)
def test_nothing_is_written_for_a_title_that_cannot_be(
    book: Path, name: str, told: str
) -> None:
    before = {file: file.read_bytes() for file in book.rglob("*") if file.is_file()}
    with pytest.raises(ChapterError) as refused:
        begin(book, name)
    assert str(refused.value) == told
    assert before == {f: f.read_bytes() for f in book.rglob("*") if f.is_file()}


def test_the_page_that_is_copied_is_right() -> None:
    page = load_page(ROOT / TEMPLATE, ROOT)
    assert page_problems(page, ROOT) == []
