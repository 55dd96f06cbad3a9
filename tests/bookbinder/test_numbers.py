"""Strong numbers are found in what the page has run, to the digits shown."""

from pathlib import Path

import pytest

from bookbinder import numbers
from bookbinder.listings import listed_sections
from bookbinder.numbers import number_problems
from bookbinder.page import read_page
from bookbinder.writing import write_whole

RUN = """\
# Title

## Here

{prose}

```python
print(0.5342, 98304, 12.5, f"{{2**20:,}}")
```

<!--pytest-codeblocks:expected-output-->
```text
0.5342 98304 12.5 1,048,576
```

## There

```python
steps = 1_500
```

Nothing.
"""


CODE = "```python\nx = 1\n```"


def unbacked(prose: str, front: str = "", root: Path = Path()) -> list[str]:
    page = read_page(front + RUN.format(prose=prose), "page.md")
    problems = number_problems(page, [*listed_sections(page, root)])
    return [problem.reason.partition(" appears")[0] for problem in problems]


BACKED = """\
The loss is 0.5342, or 0.53, or 53 %, or 53.4 %.
That is 98,304 of them, 98304 in all, and 12.5 each.
Printed in groups it is 1,048,576, or 1048576.
| loss | 0.534 |
In 2017, with PyTorch 2.13 and Python 3.11, in section 3.25, three of 8.
They [report 28.4 and 512](https://example.com) of their own.
The code `x = 1.25` and the formula $x = 1.25$ are not prose.
GPT-2 has 124M parameters, and arXiv:1706.03762 is a paper; so is #38094.
A slip of 2 or 3 of 10 is small: 0.5, 0.1.
"""
UNBACKED = {
    "0.5343": "The loss is 0.5343.",
    "0.54": "The loss is 0.54.",
    "54 %": "That is 54 %.",
    "98,305": "That is 98,305 of them.",
    "0.535": "| loss | 0.535 |",
    "1,500": "It takes 1,500 steps.",  # under another heading
    "0.71": "A figure (0.71) in brackets.",
    "137": "There are 137 of them, and 99 others.",
}


def test_a_strong_number_stands_in_what_ran_under_its_heading() -> None:
    for prose in BACKED.splitlines():
        assert unbacked(prose) == [], prose
    for number, prose in UNBACKED.items():
        assert unbacked(prose) == [number]


def test_a_part_that_runs_nothing_looks_at_the_whole_page() -> None:
    text = RUN.format(prose="") + "\n## Questions\n\nIt is 0.53, after 1,500 steps.\n"
    assert list(number_problems(read_page(text, "page.md"), [])) == []
    # And so does what stands above all headings, whatever it runs.
    text = RUN.format(prose="").replace("# Title", f"# Title\n\nIt is 0.53.\n\n{CODE}")
    assert list(number_problems(read_page(text, "page.md"), [])) == []


def test_a_listing_under_the_heading_counts(tmp_path: Path) -> None:
    section = "# --8<-- [start:here]\nx = 0.77\n# --8<-- [end:here]\n"
    write_whole(tmp_path / "src/module.py", section)
    listing = '```py title="src/module.py"\n--8<-- "src/module.py:here"\n```'
    assert unbacked(f"It is 0.77.\n\n{listing}", root=tmp_path) == []
    assert unbacked("It is 0.77.", root=tmp_path) == ["0.77"]


def test_front_matter_lists_the_rest_and_names_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prose = "The largest is 65,504, and it took 48.25 s."
    assert unbacked(prose) == ["65,504", "48.25"]
    (tmp_path / "run.json").write_text('{"seconds": 48.2468}')
    monkeypatch.setattr(numbers, "RECORDS", tmp_path)
    front = '---\nnumbers:\n  "65,504": by IEEE 754\nrecords: [run]\n---\n\n'
    assert unbacked(prose, front, tmp_path) == []
