"""One command brings outputs up to date, whole pages or none."""

from pathlib import Path

import pytest

from bookbinder.outputs import refresh

DRIFTED = """\
# Page

```python
print(1)
print()
print("  two")
```

<!--pytest-codeblocks:expected-output-->
```text
0
more
```

Between.

<!--pytest-codeblocks:cont-->
```python
x = 3
```

<!--pytest-codeblocks:cont-->
```python
print(x)
```

The end.
"""
RIGHT = """\
# Page

```python
print(1)
print()
print("  two")
```

<!--pytest-codeblocks:expected-output-->
```text
1

  two
```

Between.

<!--pytest-codeblocks:cont-->
```python
x = 3
```

<!--pytest-codeblocks:cont-->
```python
print(x)
```

<!--pytest-codeblocks:expected-output-->
```text
3
```

The end.
"""


def test_drifted_and_missing_outputs_are_written_and_shown(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(DRIFTED)
    difference, problems = refresh(page, tmp_path)
    assert problems == []
    assert page.read_text() == RIGHT
    changed = [line for line in difference.splitlines() if line[0] in "+-"][2:]
    assert changed == [
        "-0",
        "-more",
        "+1",
        "+",
        "+  two",
        "+<!--pytest-codeblocks:expected-output-->",
        "+```text",
        "+3",
        "+```",
        "+",
    ]


def test_a_right_page_is_left_alone(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(RIGHT)
    before = page.stat().st_mtime_ns
    assert refresh(page, tmp_path) == ("", [])
    assert page.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("broken", "report"),
    [
        (("print(x)", "print(y)"), "page.md:24: NameError: name 'y' is not defined"),
        (("x = 3", "raise SystemExit(2)"), "page.md:19: SystemExit: 2: a block"),
        (("print(x)", "print(x, end='')"), "page.md:23: the output does not end with"),
        (("print(x)", "print('```')"), "page.md:23: the output has a line"),
        (("print(x)", "import pytest; pytest.skip('x')"), "page.md:24: Skipped: x: a"),
        (("```python\nx", "```python x\nx"), "page.md:17: cont must stand before a"),
    ],
)
def test_a_page_with_a_problem_is_left_as_it_was(
    tmp_path: Path, broken: tuple[str, str], report: str
):
    page = tmp_path / "page.md"
    page.write_text(DRIFTED.replace(*broken))
    before = page.read_bytes()
    difference, problems = refresh(page, tmp_path)
    assert difference == ""
    assert str(problems[0]).startswith(report)
    assert page.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["page.md"]


def test_an_edit_made_while_the_page_runs_is_not_lost(tmp_path: Path):
    page = tmp_path / "page.md"
    text = "```python\nfrom pathlib import Path\n\n{}print(1)\n```\n"
    page.write_text(text.format(f"Path({str(page)!r}).write_text('edited')\n"))
    difference, problems = refresh(page, tmp_path)
    assert difference == ""
    assert str(problems[0]) == "page.md:1: the page was edited while it ran: run again"
    assert page.read_text() == "edited"


def test_pictures_are_kept_where_the_page_shows_them(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfrom pathlib import Path\n\n"
        'Path("x.svg").write_text("<svg><g/></svg>")\n```\n\n'
        "![A picture](../assets/figures/page/x.svg)\n"
    )
    difference, problems = refresh(page, tmp_path)
    assert (difference, problems) == ("drawn: docs/assets/figures/page/x.svg\n", [])
    kept = tmp_path / "docs" / "assets" / "figures" / "page" / "x.svg"
    assert kept.read_text() == "<svg><g/></svg>"
    assert refresh(page, tmp_path) == ("", [])
