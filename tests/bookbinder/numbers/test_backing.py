"""A number that changes alone is refused, wherever its page has it from."""

import re
from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.numbers.backing import number_problems
from bookbinder.numbers.works import is_cited, works
from bookbinder.reading.bindings import Binding, read_binding
from bookbinder.reading.pages import load_page, read_page
from bookbinder.running.blocks import run_chain

ROOT = Path(__file__).parents[3]

RUN = """\
```python
heads = [5, 7, 11]
print(f"{sum(heads) / 9:.4f} for 64 tokens")
```

<!--pytest-codeblocks:expected-output-->
```text
2.5556 for 64 tokens
```

"""


def problems(text: str) -> list[str]:
    """Run a page and give what is wrong with its numbers."""
    page, evidence = read_page(text, "page.md"), Evidence()
    assert page.problems == []
    for chain in page.chains:
        with evidence.gathered(chain, ROOT):
            run_chain(chain)
    found = number_problems(page, evidence.notes.values, ROOT)
    return [f"{problem.line}: {problem.reason}" for problem in found]


@pytest.mark.parametrize(
    "text",
    [
        "The mean is 2.556 here.",
        "It reads 64 tokens.",
        'There are three heads.\n\n<!-- holds: "three heads" = len(heads) -->',
        'From 5 to 11.\n\n<!-- holds: "5 to 11" = [heads[0], heads[-1]] -->',
        'Less than half.\n\n<!-- holds: "than half" = min(heads) / 11 < 0.5 -->',
        'By **three** heads.\n\n<!-- holds: "three heads" = len(heads) -->',
        '<!-- holds: "| head |" = heads -->\n\n| head |\n|---|\n| 5 |\n| 7 |\n| 11 |',
        '<!-- given: "two hands": a choice -->\nBy two hands.',
        "There are three heads.",
        r"And $\sqrt 4 = 2$.",
        "And $2^3 = 8$, from torch 2.13 on.",
        "In [issue #123](https://example.com/issues/123).",
        "It calls `sum(heads) / 9` here.",
        "Vaswani et al. (2017, section 3.2.1) and table 3.",
        "As GPT-2 does.",
        "Off by a millionth.\n\n```python\nassert 0 < 1e-6\n```",
        "### 1. A\n\n### 2. B",
        "<!-- constants: 2 1 -->\nWith $2D + d_1$ of them.",
        "<!-- constants: 2 -->\nIt is $2D$.\n\n## B\n\n<!-- constants: 3 -->\n$3D$.",
    ],
)
def test_a_backed_number_is_accepted(text: str) -> None:
    assert problems(RUN + text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The mean is 2.566 here.", "2.566 (mean is 2.566 here.) is backed by no run"),
        ("It reads 64 layers.", "64 (It reads 64 layers.) is backed by no run"),
        ("There are four heads.", "four (There are four heads.)"),
        ("There are 5 heads.", "5 (There are 5 heads.)"),
        ("It is 11.0000 long.", "11.0000 (It is 11.0000 long.)"),
        ("And $2^3 = 9$.", "9: recomputed, the equation does not hold"),
        ("From torch 2.12 on.", "2.12 (From torch 2.12 on.)"),
        ("[issue #124](https://example.com/issues/123)", "124 ([issue # 124 ]"),
        ("It calls `sum(heads) / 8` here.", "8 (`sum(heads) / 8 ` here.)"),
        ("Vaswani et al. (2018)", "2018 (al. ( 2018 ))"),
        ("Vaswani et al. (2017, section 9.1)", "9.1 ((2017, section 9.1 ))"),
        (
            "Off by a millionth.\n\n```python\nassert 0 < 1e-5\n```",
            "millionth (by a millionth",
        ),
        ("Off by a billionth.", "billionth (by a billionth"),
        ("As GPT-9 does.", "GPT-9 (As GPT-9 does.)"),
        ("## Sources\n\n- *A title*, 2.5556.", "title*, 2.5556 .)"),
        ("### 1. A\n\n### 3. B", "3. here, where 2. comes next"),
        ("With $2D + d_1$ of them.", "have the constants 2 1: compare"),
        ("<!-- constants: 1 2 -->\n$2D + d_1$", "have the constants 2 1: compare"),
        ("<!-- constants: 2 -->\nNone.", "have the constants of none: compare"),
        ("<!-- constants: 3 -->\n$2D$\n\n## B\n\n$3D$", "have the constants 2:"),
    ],
)
def test_a_number_that_nothing_backs_is_refused(text: str, words: str) -> None:
    found = problems(RUN + text)
    assert any(words in problem for problem in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'Four heads.\n\n<!-- holds: "Four heads" = len(heads) -->',
            "gives 3, the page",
        ),
        ('In 5 and 7.\n\n<!-- holds: "5 and 7" = 5 -->', "has 2 numbers, 5 gives 1"),
        ('Half.\n\n<!-- holds: "Half" = 1 > 2 -->', 'which "Half"? Quote a word'),
        ('Half so.\n\n<!-- holds: "Half so" = 1 > 2 -->', "1 > 2 is not true"),
        (
            'Near 8 of.\n\n<!-- holds: "Near 8 of" = 6 < sum(heads) / 3 < 7.8 -->',
            "but 8 is not within these bounds",
        ),
        ('Two.\n\n<!-- holds: "no words" = 2 -->', "no number in the words"),
        ('By 5 ms.\n\n<!-- holds: "5 ms" = lost -->', "gives no number: NameError"),
        ('By 5 ms.\n\n<!-- holds: "5 ms" = "5" -->', None),
        ('<!-- given: "| a |": so -->\n\n| a |\n|---|\n| 5 |', "quote its rows"),
        ('<!-- given: "three heads": so -->\nIn three heads.', "needs no reason"),
        ('By 5 ms.\n\n## B\n\n<!-- holds: "5 ms" = 5 -->', "no number in the words"),
    ],
)
def test_a_binding_that_does_not_hold_is_refused(text: str, words: str | None) -> None:
    found = problems(RUN + text)
    assert (found == []) if words is None else any(words in each for each in found)


def test_the_first_lines_of_a_page_are_bound_to_its_first_run() -> None:
    text = '<!-- holds: "three heads" = len(heads) -->\nThere are three heads.\n\n'
    assert problems(text + RUN) == []


def test_a_binding_leaves_no_trace_in_the_run() -> None:
    text = """\
```python
import random

import torch
```

<!-- holds: "2 draws" = [2 + 0 * torch.rand(1) + 0 * random.random()] -->
Of 2 draws:

<!--pytest-codeblocks:cont-->
```python
print(torch.rand(1).item(), random.random())
```
"""
    printed = []
    for page in (
        text,
        text.replace('<!-- holds: "2 draws"', '<!-- given: "2 draws": it'),
    ):
        page, evidence = read_page(page, "page.md"), Evidence()
        (chain,) = page.chains
        with evidence.gathered(chain, ROOT):
            printed.append(run_chain(chain))
    assert printed[0] == printed[1]


def test_what_only_a_comment_calls_the_page_has_not_run() -> None:
    text = """\
```python
from tested_transformer import causal_mask
```

<!-- holds: "2 rows" = len(causal_mask(2)) -->
It has 2 rows.
"""
    called = text.replace("causal_mask\n", "causal_mask; causal_mask(2)\n")
    ran = []
    for each in (called, text):  # the first loads the module
        page, evidence = read_page(each, "page.md"), Evidence()
        (chain,) = page.chains
        with evidence.gathered(chain, ROOT):
            run_chain(chain)
        assert number_problems(page, evidence.notes.values, ROOT) == []
        ran.append(any(Path(file).name == "masks.py" for file, _ in evidence.lines))
    assert ran == [True, False]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<!-- holds: four tokens = 4 -->", "wanted words of the page in quotes"),
        ('<!-- holds: "four tokens": 4 -->', "stands = and an expression"),
        ('<!-- given: "four tokens" = 4 -->', "stands a colon and a reason"),
        ('<!-- holds: "four tokens" = 4 + -->', "4 + is no expression"),
        ("<!-- holds -->", "this comment binds nothing"),
    ],
)
def test_a_comment_that_binds_nothing_is_refused(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read_binding(line, 1)


def test_a_binding_is_read() -> None:
    line = '<!-- holds: "four tokens", "4 x" = len(tokens) == 4 -->'
    wanted = Binding("holds", ("four tokens", "4 x"), "len(tokens) == 4", 3)
    assert read_binding(line, 3) == wanted
    assert read_binding("<!-- something else -->", 3) is None


def test_a_citation_is_that_of_the_work_named_last() -> None:
    text = "Dao et al. (2022), and Vaswani et al., 2017, sections 3.1 and 3.4"
    for number, right in (("2022", True), ("2017", True), ("3.1", True), ("3.4", True)):
        start = text.index(number)
        assert is_cited(text, start, start + len(number)) is right
    wrong = text.replace("2022", "2017")
    assert not is_cited(wrong, wrong.index("2017"), wrong.index("2017") + 4)


def test_each_work_is_cited() -> None:
    pages = "".join(
        " ".join(page.read_text("utf-8").split())
        for page in (ROOT / "docs").rglob("*.md")
    )
    unused = [work.title for work in works() if work.title.split(":")[0] not in pages]
    assert unused == []


@pytest.mark.parametrize("name", ["06-no-peeking", "19-sampling"])
def test_the_text_of_a_chapter_has_its_bindings(name: str) -> None:
    """What needs no run: each quotation is there, each other number is backed."""
    page = load_page(ROOT / "docs" / "chapters" / f"{name}.md", ROOT)
    assert len(page.bindings) > 20
    found = number_problems(page, {}, ROOT)
    assert {each.reason.rpartition(": ")[2] for each in found} == {
        "nothing evaluated it"
    }
