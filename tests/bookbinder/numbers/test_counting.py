"""What a page counts itself is accepted, and a wrong count is not."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

import tested_transformer
from bookbinder.numbers.backing import number_problems
from bookbinder.numbers.counting import standing
from bookbinder.numbers.facts import phrases
from bookbinder.numbers.numerals import plain
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]

RUN = """\
```python
names = "ann bo cy".split()
layer = Layer(num_heads=4)
print("the 2 best keys", "and two late keys")
```

<!--pytest-codeblocks:expected-output-->
```text
the 2 best keys and two late keys, by minus-five: 0.125
```

"""


def refused(text: str) -> list[str]:
    return [each.reason for each in number_problems(read_page(text, "p.md"), {}, ROOT)]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Three names.", "Four names."),
        ("Its four heads.", "Its three heads."),
        ("Take two keys.", "Take three keys."),
        ("To three decimals.", "To four decimals."),
        ("Two late ones: two late keys.", "Three late keys."),
        ("What minus five does.", "What minus six does."),
        ("By four saws: a, b, c and d.", "By three saws: a, b, c and d."),
        ("By four rules: a; b, c; d; e.", "By four rules: a; b, c; d."),
        ("A, b and c: all three stay.", "A, b and c: all four stay."),
        ("Three to do: a, b, and paste.", "To do it: a, b, and paste three boxes."),
        ("So few. Two that differ stay.", "So few. Two stay."),
        ("Two rules:\n\n- a\n- b", "Two rules:\n\n- a\n- b\n- c"),
        ("Two rows:\n\n| a |\n|---|\n| b |\n| c |", "Two rows:\n\n| a |\n|---|\n| b |"),
        ("Look at head 0.", "Look at head 7."),
        ("Look at head 1.", "Look at head 2."),
        ("The two were one.", "The three were one."),
        ("Any two tails do.", "Any three tails do."),
        ("Two tails that differ.", "Two tails."),
        ("The other half is dark.", "Of these half is dark."),
        ("With $k = 3$ it ends.", "So $k = 3$ there."),
        ("Weights sum to 1.", "Weights sum to 2."),
    ],
)
def test_what_the_page_counts_is_accepted_and_no_other_count(
    right: str, wrong: str
) -> None:
    assert refused(RUN + right) == []
    assert len(refused(RUN + wrong)) == 1


def test_a_run_overrules_what_the_words_alone_would_allow() -> None:
    assert refused(RUN + "The two heads differ.") != []
    assert refused(RUN + "The two tails differ.") == []


def test_a_source_is_not_counted() -> None:
    assert refused(RUN + "## Sources\n\n- Ann, any two tails do.") != []
    assert refused(RUN + "## Sources\n\nAnn says any two tails do.") == []


def test_phrases_of_a_program() -> None:
    code = (
        'tails = [1, *more]\nkinds = {"a": 1, "b": 2}\nsteps = 30 * n\n'
        "lines = text.split()\nrow = (1, 2)\nsets: int = 3  # 9 lives\nx = 1e-9"
    )
    assert {*phrases(code)} == {("kind", 2), ("decimal", 9)}
    assert {*phrases("12 heads, rank: 8\n0.25")} == {
        *(("head", 12), ("rank", 8), ("decimal", 2)),
    }


@cache
def book() -> str:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return "\n".join(plain(page.read_text("utf-8")) for page in pages).lower()


@pytest.mark.parametrize("words", standing())
def test_standing_words_are_used_and_say_what_a_run_gives(words: str) -> None:
    assert re.search(rf"\b{re.escape(words)}\b", book()), "no page has these words"
    why = standing()[words]
    if why.startswith("= "):
        known = {"torch": torch, "tested_transformer": tested_transformer}
        value = eval(why[2:], {**known, "root": ROOT, "re": re})
        numbers = {"four": 4.0, "1": 1.0, "4.0": 4.0}
        assert float(value) == pytest.approx(
            next(numbers[word] for word in words.split() if word in numbers)
        )
