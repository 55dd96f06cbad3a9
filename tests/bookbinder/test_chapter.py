"""A chapter is begun whole or not at all, and is right as it was begun."""

from pathlib import Path

import pytest
import yaml

from bookbinder.chapter import TEMPLATE, ChapterError, begin, chapter_problems
from bookbinder.check import check
from bookbinder.page import load_page, read_page
from bookbinder.writing import write_whole

ROOT = Path(__file__).parents[2]
PLACES = {
    "docs/chapters/one.md": "# One\n",
    "docs/index.md": "| [One](chapters/one.md) | Why? |\n",
    "docs/map.md": """\
    I["`**Attention**<br/>One<br/>Errata`"]
    %% [One](chapters/one.md)
    %% [Errata](errata.md)
""",
    "mkdocs.yml": """\
nav:
  - I. Attention:
      - One: chapters/one.md
  - Write:
      - A: chapters/a-chapter-to-copy.md
""",
}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    for name, text in {**PLACES, TEMPLATE: (ROOT / TEMPLATE).read_text()}.items():
        write_whole(tmp_path / name, text)
    return tmp_path


def test_a_chapter_gets_its_page_its_entry_and_its_row(book: Path) -> None:
    begin(book, "Sinks: a second look", question="Where do the heads look?")
    file = book / "docs/chapters/sinks-a-second-look.md"
    front, _, text = file.read_text().partition("\n---\n\n")
    assert front == '---\ndescription: "Where do the heads look?"\ntags:\n  - "Sinks"'
    assert text.startswith("# Sinks: a second look\n\n*Where do the heads look?*\n\n")
    nav = yaml.safe_load((book / "mkdocs.yml").read_text())["nav"]
    path = "chapters/sinks-a-second-look.md"
    assert nav[0]["I. Attention"][1] == {"Sinks: a second look": path}
    row = f"| [Sinks]({path}) | Where do the heads look? |\n"
    assert (book / "docs/index.md").read_text().endswith(row)
    box, *links = (book / "docs/map.md").read_text().splitlines()
    assert box == '    I["`**Attention**<br/>One<br/>Sinks<br/>Errata`"]'
    assert links[1] == f"    %% [Sinks]({path})"
    assert [*chapter_problems(load_page(file, book), book)] == []
    begin(book, "Über 100 % von A")  # whose lines come below these
    second_path = book / "docs/chapters/über-100-von-a.md"
    assert [*chapter_problems(load_page(second_path, book), book)] == []


CHAPTER = """\
---
description: What a chapter must have to be one.
tags: [form]
---

# One

*What is it?*

## Exercises

### First

```python
def check_it(answer):
    print("right")
```

<!--pytest-codeblocks:expected-output-->
```text
right
too low
too high
no number
```
"""


OWN = 'def check_it(answer):\n    print("right")\n```'
CITED = "\n## Sources\n\n- A. Author, *A Title*, 2024.\n"
LINKED = CITED.replace("*A Title*", "[*A Title*](https://example.com)")
IMPORTED = "from transformer_book import (\n    grade_it,\n)\n\ngrade_it(1)\n```"


def test_what_a_chapter_lacks_is_told_with_its_line(book: Path) -> None:
    for old, new, line, reason in (
        ("", "", 0, ""),
        (CHAPTER[CHAPTER.index(OWN) :], f"{IMPORTED}\n", 0, ""),
        ("tags: [form]", "tags: []", 1, "no tags: list under tags: in the front"),
        ("*What is it?*", "What is it?", 8, "no question: below the title write"),
        ("## Exercises", "- *One* of a list\n\n## Exercises", 0, ""),
        ("## Exercises", "## Tasks", 25, "no heading ## Exercises, with at least"),
        ("### First", "First", 10, "no exercise, which begins with ###"),
        ("check_it", "see", 12, "no run of this exercise calls a grader"),
        ("too low\n", "", 12, "this exercise shows 2 refused answers: print"),
        ("number\n```\n", f"number\n```\n{CITED}", 29, "no link: write [*Title*]"),
        ("number\n```\n", f"number\n```\n{LINKED}", 0, ""),
    ):
        page = read_page(CHAPTER.replace(old, new, 1), "docs/chapters/one.md")
        problems = [*chapter_problems(page, book)]
        assert [problem.line for problem in problems] == [line] * bool(reason)
        assert all(reason in problem.reason for problem in problems)


def test_a_chapter_without_a_place_is_told_what_to_write_where(book: Path) -> None:
    text = CHAPTER.replace("# One", "# Two: again", 1).replace("*What is", "*Whatis")
    page = read_page(text, "docs/chapters/two.md")
    assert [str(problem) for problem in chapter_problems(page, book)] == [
        "docs/chapters/two.md:1: not in mkdocs.yml: write - Two: again: "
        "chapters/two.md, under the part of the book it belongs to",
        "docs/chapters/two.md:1: not in docs/index.md: write | [Two](chapters/two.md) "
        "| its question |, in the list",
        "docs/chapters/two.md:1: not in docs/map.md: write Two into the box of its "
        "part and %% [Two](chapters/two.md) below, then run make diagrams",
    ]


def test_nothing_is_written_for_a_title_that_cannot_be(book: Path) -> None:
    before = {file: file.read_bytes() for file in book.rglob("*") if file.is_file()}
    for name, message in {
        "": 'give a title: make chapter NAME="Attention sinks"',
        "One": "NAME='One': docs/chapters/one.md already exists",
        "A `b`": "NAME='A `b`': wanted words, without `",
    }.items():
        with pytest.raises(ChapterError) as refused:
            begin(book, name)
        assert str(refused.value) == message
    assert before == {f: f.read_bytes() for f in book.rglob("*") if f.is_file()}


def test_the_linters_speak_of_a_page_too(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    typo = "t" + "eh"  # In one piece, the linter would find it here.
    output = "```text\na\tb\n```"
    page.write_text(f"# Title\n\nIn {typo} end.\n## Next\n\n{output}\n", "utf-8")
    report = "\n".join(check(page, ROOT))
    assert f"{typo} ==> " in report
    assert "Headings should be surrounded by blank lines" in report
    assert "tab" not in report
