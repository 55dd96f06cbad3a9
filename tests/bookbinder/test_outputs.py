"""One command brings outputs up to date, whole pages or none."""

from pathlib import Path

import pytest

from bookbinder.outputs import agrees, refresh
from bookbinder.page import Tolerance

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
SHOWN = """\
<!--pytest-codeblocks:expected-output-->
```text
3
```

"""
RIGHT = DRIFTED.replace("0\nmore\n", "1\n\n  two\n")
RIGHT = RIGHT.replace("The end.", f"{SHOWN}The end.")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def test_drifted_and_missing_outputs_are_written_and_shown(page: Path):
    page.write_text(DRIFTED)
    difference, problems = refresh(page, page.parent)
    assert problems == []
    assert page.read_text() == RIGHT
    changed = [line for line in difference.splitlines() if line[0] in "+-"][2:]
    written = ["1", "", "  two", *SHOWN.splitlines()]
    assert changed == ["-0", "-more", *(f"+{line}" for line in written)]


@pytest.mark.parametrize(
    ("broken", "report"),
    [
        (("print(x)", "print(y)"), "page.md:24: NameError: name 'y' is not defined"),
        (("x = 3", "raise SystemExit(2)"), "page.md:19: SystemExit: 2: a block"),
        (("print(x)", "print(x, end='')"), "page.md:23: the output does not end with"),
        (("print(x)", "print('```')"), "page.md:23: the output has a line"),
        (("print(x)", "print('\\ud83d')"), "page.md:23: the output has '\\ud83d', wh"),
        (("print(x)", "print('\\x1b[1m')"), "page.md:23: the output has '\\x1b', wh"),
        (("print(x)", "import pytest; pytest.skip('x')"), "page.md:24: Skipped: x: a"),
        (
            ("```python\nx", "```python x\nx"),
            "page.md:17: <!--pytest-codeblocks:cont--> must",
        ),
    ],
)
def test_a_page_with_a_problem_is_left_as_it_was(
    page: Path, broken: tuple[str, str], report: str
):
    page.write_text(DRIFTED.replace(*broken))
    before = page.read_bytes()
    difference, problems = refresh(page, page.parent)
    assert difference == ""
    assert str(problems[0]).startswith(report)
    assert page.read_bytes() == before
    assert [*page.parent.iterdir()] == [page]


def test_an_edit_made_while_the_page_runs_is_not_lost(page: Path):
    edit = f"Path({str(page)!r}).write_text('edited')"
    page.write_text(f"```python\nfrom pathlib import Path\n\n{edit}\nprint(1)\n```\n")
    difference, problems = refresh(page, page.parent)
    assert difference == ""
    assert str(problems[0]) == "page.md:1: the page was edited while it ran: run again"
    assert page.read_text() == "edited"


def test_pictures_are_kept_where_the_page_shows_them(page: Path):
    page.write_text(
        "```python\nfrom pathlib import Path\n\n"
        'Path("x.svg").write_text("<svg><g/></svg>")\n```\n\n'
        "![A picture](../assets/figures/page/x.svg)\n"
    )
    name = "docs/assets/figures/page/x.svg"
    assert refresh(page, page.parent) == (f"drawn: {name}\n", [])
    assert (page.parent / name).read_text() == "<svg><g/></svg>"
    assert refresh(page, page.parent) == ("", [])


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 1.234", "loss 1.235"),
        ("tensor([1., 0.])", "tensor([1.0000, 0.0000])"),
        ("[-0.0000, 0.5]", "[0.0000, 0.5]"),
        ("error 9e-08", "error 1e-07"),
        ("0.3", "0.30000000000000004"),
        ("a  9.99 b", "a 10.00 b"),  # a wider number takes room from the spaces
        ("nan inf True 3", "nan inf True 3"),
        ("spaces that nobody sees ", "spaces that nobody sees"),
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
        ("(2, 3)", "(3, 2)"),
        ("True", "False"),
        ("  further in", " further in"),
        ("a  column", "a column"),
        ("nan", "0.0"),
        ("inf", "1e38"),
        ("1.5", "2"),  # an integer is no decimal
        ("1e-01", "6e-08"),
        ("0e+00", "3e-01"),
        ("[1.]", "[1.6000]"),
        ("0.33", "0.3333"),
        ("0.5", "-0.5"),
        ("conv2.5d", "conv2.6d"),
        ("torch 2.13.0", "torch 2.14.0"),
    ],
)
def test_all_else_must_be_equal(shown: str, printed: str):
    assert not agrees(shown, printed, Tolerance())
    assert not agrees(printed, shown, Tolerance())


@pytest.mark.parametrize(
    ("shown", "printed", "tolerance", "agree"),
    [
        ("at 10: 2.00", "at 10: 2.09", Tolerance(within=0.05), True),
        ("at 10: 2.00", "at 10: 2.11", Tolerance(within=0.05), False),
        ("at 10: 2.00", "at 11: 2.00", Tolerance(within=0.05), False),
        ("3.1e-07 0.25", "0.0e+00 0.25", Tolerance(below=1e-6), True),
        ("0e+00", "1e-01", Tolerance(below=1e-6), False),
        ("3.1e-07 0.25", "2.0e-06 0.25", Tolerance(below=1e-6), False),
        ("3.1e-07 0.25", "3.1e-07 0.27", Tolerance(below=1e-6), False),
    ],
)
def test_a_tolerance_is_a_share_of_the_number_or_a_bound_of_errors(
    shown: str, printed: str, tolerance: Tolerance, agree: bool
):
    assert agrees(shown, printed, tolerance) is agree


WITHIN = """\
```python
print(1.24)
print(7)
```

<!-- within {}% -->
<!--pytest-codeblocks:expected-output-->
```text
1.25
{}
```
"""


def test_an_output_that_agrees_stays_as_it_is_written(page: Path):
    page.write_text(WITHIN.format(5, 8))
    assert refresh(page, page.parent)[1] == []
    assert page.read_text() == WITHIN.format(5, 7)
