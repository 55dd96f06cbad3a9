"""One command brings outputs up to date, whole pages or none."""

from pathlib import Path

import pytest

from bookbinder.outputs import agrees, refresh, wide_tolerances
from bookbinder.page import Tolerance, read_page

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


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 1.234", "loss 1.235"),
        ("tensor([1., 0.])", "tensor([1.0000, 0.0000])"),
        ("[-0.0000, 0.5]", "[0.0000, 0.5]"),
        ("error 3.0e-07", "error 3.1e-07"),
        ("0.3", "0.30000000000000004"),
        ("error 9e-08", "error 1e-07"),
        ("a  9.99 b", "a 10.00 b"),  # a wider number takes room from the spaces
        ("nan inf True 3", "nan inf True 3"),
    ],
)
def test_numbers_agree_to_a_unit_of_the_last_digit(shown: str, printed: str):
    assert agrees(shown, printed, Tolerance())
    assert agrees(printed, shown, Tolerance())


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 1.234", "loss 1.236"),
        ("loss 1.234", "lost 1.234"),
        ("12 heads", "13 heads"),
        ("(2, 3)", "(3, 2)"),
        ("True", "False"),
        ("nan", "0.0"),
        ("inf", "1e38"),
        ("1.5", "2"),  # an integer is no decimal
        ("3e-07", "3e-06"),
        ("1e-01", "6e-08"),
        ("1e+00", "0e+00"),
        ("[1.]", "[1.6000]"),
        ("0.33", "0.3333"),
        ("6e-08", "1e-01"),
        ("0e+00", "3e-01"),
        ("0.5", "-0.5"),
        ("conv2.5d", "conv2.6d"),
        ("torch 2.13.0", "torch 2.13.1"),
    ],
)
def test_all_else_must_be_equal(shown: str, printed: str):
    assert not agrees(shown, printed, Tolerance())
    assert not agrees(printed, shown, Tolerance())


def test_a_tolerance_is_a_share_of_the_number():
    assert agrees("at 10: 2.00", "at 10: 2.09", Tolerance(within=0.05))
    assert not agrees("at 10: 2.00", "at 10: 2.11", Tolerance(within=0.05))
    assert not agrees("at 10: 2.00", "at 11: 2.00", Tolerance(within=0.05))


def test_errors_below_their_bound_agree():
    assert agrees("3.1e-07 0.25", "0.0e+00 0.25", Tolerance(below=1e-6))
    assert not agrees("0e+00", "1e-01", Tolerance(below=1e-6))
    assert not agrees("3.1e-07 0.25", "2.0e-06 0.25", Tolerance(below=1e-6))
    assert not agrees("3.1e-07 0.25", "3.1e-07 0.27", Tolerance(below=1e-6))


def test_an_output_that_agrees_stays_as_it_is_written(tmp_path: Path):
    page = tmp_path / "page.md"
    text = (
        "```python\nprint(1.24)\nprint(7)\n```\n\n<!-- within 5% -->\n"
        "<!--pytest-codeblocks:expected-output-->\n```text\n1.25\n{}\n```\n"
    )
    page.write_text(text.format("8"))
    assert refresh(page, tmp_path)[1] == []
    assert page.read_text() == text.format("7")


def test_wide_tolerances_are_listed():
    text = (
        "```python\nprint(1.5)\n```\n\n<!-- within {}% -->\n"
        "<!--pytest-codeblocks:expected-output-->\n```text\n1.5\n```\n"
    )
    assert wide_tolerances(read_page(text.format(10), "page.md")) == []
    (wide,) = wide_tolerances(read_page(text.format(25), "page.md"))
    assert str(wide) == "page.md:5: within 25%"
