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


def test_a_page_with_a_problem_is_left_as_it_was(page: Path):
    for right, wrong, report in (
        ("print(x)", "print(y)", "24: NameError: name 'y' is not defined"),
        ("x = 3", "raise SystemExit(2)", "19: SystemExit: 2: a block must"),
        ("print(x)", "print(x, end='')", "23: the output does not end with"),
        ("print(x)", "print('```')", "23: the output has a line"),
        ("print(x)", "print('\\ud83d')", "23: the output has '\\ud83d', which"),
        ("print(x)", "print('\\x1b[1m')", "23: the output has '\\x1b', which"),
        ("print(x)", "print('50%\\r100%')", "23: the output has '\\r', which"),
        ("print(x)", "import pytest; pytest.skip('x')", "24: Skipped: x: a block"),
        ("```python\nx", "```python x\nx", "17: <!--pytest-codeblocks:cont--> must"),
    ):
        page.write_text(DRIFTED.replace(right, wrong))
        before = page.read_bytes()
        difference, problems = refresh(page, page.parent)
        assert difference == ""
        assert str(problems[0]).startswith(f"page.md:{report}")
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


NO, WITHIN_5, BELOW = Tolerance(), Tolerance(within=0.05), Tolerance(below=1e-6)
AGREE = [
    ("loss 1.234", "loss 1.235", NO),
    ("tensor([1., 0.])", "tensor([1.0000, 0.0000])", NO),
    ("[-0.0000, 0.5]", "[0.0000, 0.5]", NO),
    ("error 9e-08", "error 1e-07", NO),
    ("0.3", "0.30000000000000004", NO),
    ("a  9.99 b", "a 10.00 b", NO),  # a wider number takes room from the spaces
    ("nan inf True 3", "nan inf True 3", NO),
    ("spaces that nobody sees ", "spaces that nobody sees", NO),
    ("at 10: 2.00", "at 10: 2.09", WITHIN_5),
    ("3.1e-07 0.25", "0.0e+00 0.25", BELOW),
]
DIFFER = [
    ("loss 1.234", "loss 1.236", NO),
    ("loss 1.234", "lost 1.234", NO),
    ("(2, 3)", "(3, 2)", NO),
    ("  further in", " further in", NO),
    ("a  column", "a column", NO),
    ("nan", "0.0", NO),
    ("inf", "1e38", NO),
    ("1.5", "2", NO),  # an integer is no decimal
    ("1e-01", "6e-08", NO),
    ("0e+00", "3e-01", NO),
    ("[1.]", "[1.6000]", NO),
    ("0.33", "0.3333", NO),
    ("0.5", "-0.5", NO),
    ("conv2.5d", "conv2.6d", NO),
    ("torch 2.13.0", "torch 2.14.0", NO),
    ("at 10: 2.00", "at 10: 2.11", WITHIN_5),
    ("at 10: 2.00", "at 11: 2.00", WITHIN_5),
    ("0e+00", "1e-01", BELOW),
    ("3.1e-07 0.25", "2.0e-06 0.25", BELOW),
    ("3.1e-07 0.25", "3.1e-07 0.27", BELOW),
]


def test_numbers_agree_to_a_unit_of_the_last_digit_or_a_tolerance_and_text_is_equal():
    for cases, wanted in ((AGREE, True), (DIFFER, False)):
        for shown, printed, tolerance in cases:
            assert agrees(shown, printed, tolerance) is wanted, (shown, printed)
            assert agrees(printed, shown, tolerance) is wanted, (printed, shown)


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
