"""Broken pages are refused with their line and reason; right ones are not."""

import re
from pathlib import Path

from bookbinder.check import page_problems
from bookbinder.page import read_page

ROOT = Path(__file__).parents[2]


def corpus(name: str) -> dict[str, str]:
    """Return the pages of a corpus by what they are about."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return dict(
        part.split("\n", maxsplit=1)
        for part in re.split("^==== ", text, flags=re.M)[1:]
    )


# What is said of such a line of a page.
BROKEN_LINES = {
    r"So \frac{1}{2} is a half.": "left undrawn: a formula",
    "| a | b |": "left undrawn: a table",
    "See [the paper](https://example.com/a b and more.": "left undrawn: a link",
    "See [the paper][vaswani].": "left undrawn: a link",
    "Attention[^1] is all you need.": "left undrawn: a footnote",
    "This is **not bold.": "left undrawn: emphasis",
    "Write ```python here.": "left undrawn: a fence",
    "!!! note": "left undrawn: a call-out or tab",
    r"So $a = \fraq{1}{2}$.": r"\fraq",
    "# The value of $x^2$": "use words in a heading",
    "See `tested_transformer.masks.causal_masks`.": (
        "there is no tested_transformer.masks.causal_masks: causal_mask?"
    ),
    "Call `causal_mask(4, num_key=6)`.": "causal_mask takes no num_key: num_keys?",
    "Run `make tset`.": "the Makefile has no tset",
    "Run `make test PAG=docs/index.md`.": "nor mkdocs.yml reads PAG",
    "Run `tested-transformer 'train`.": "no shell reads this",
    "Run `tested-transformer tran`.": "the command has no tran: train?",
    "See `src/tested_transformer/maskz.py`.": "there is no such file",
    "See [Order](ordre.md).": "ordre.md: there is no such page: order.md?",
    "See [Order](order.md#a-bag-of-word).": "no such heading: a-bag-of-words?",
    "See [above](#the-top).": "#the-top: there is no such heading",
}


def problems(text: str, title: str = "page") -> list[str]:
    """Return ``line: reason`` for each problem."""
    stem = re.sub(r"\W+", "-", title.lower()).strip("-")
    wrong = page_problems(read_page(text, f"docs/chapters/{stem}.md"), ROOT)
    return [f"{problem.line}: {problem.reason}" for problem in wrong]


def test_a_broken_page_is_refused() -> None:
    accepted: dict[str, list[str]] = {}
    broken = {
        title: text.split("\n", maxsplit=1)
        for title, text in corpus("broken_pages.txt").items()
    }
    for line, words in BROKEN_LINES.items():
        broken[line] = [f"3: {words}", f"Text.\n\n{line}\n"]
    for title, (message, text) in broken.items():
        line, _, words = message.partition(": ")
        reasons = problems(text, title)
        if not any(p.startswith(f"{line}: ") and words in p for p in reasons):
            accepted[title] = reasons
    assert accepted == {}


def test_a_right_page_is_accepted() -> None:
    pages = corpus("right_pages.txt")
    sentences = Path(__file__).with_name("innocent_sentences.txt").read_text("utf-8")
    lines = ["# Title", "## A heading", *sentences.splitlines(), "## A heading"]
    pages["ordinary sentences"] = "\n\n".join(lines) + "\n"
    reasons = {title: problems(text, title) for title, text in pages.items()}
    assert {title: wrong for title, wrong in reasons.items() if wrong} == {}


MANY = """\
# Title

A <b>bold</b> word, and `tested_transformer.nothing`, and 12.345 of them.

```python
print(1.5)
```

<!--pytest-codeblocks:expected-output-->
```text
2.5
```

```python
print(undefined)
```
"""


def test_what_is_wrong_is_told_at_once() -> None:
    """Wrong Markdown hides no wrong output; a block that breaks off hides no other."""
    read = ["3: raw HTML", "3: `tested_transformer.nothing`", "3: 12.345 appears in no"]
    ran = ["11: the page shows '2.5'", "15: NameError"]
    reasons = problems(MANY)
    assert [w for w in read + ran if not any(f.startswith(w) for f in reasons)] == []
    # With a fence that cannot be read, nothing is said that it may have caused.
    reasons = problems(MANY.replace("```text", "```txt"))
    expected = [*read[:2], "9: <!--pytest-codeblocks:expected-output--> must stand"]
    assert len(reasons) == len(expected)
    assert [w for w in expected if not any(f.startswith(w) for f in reasons)] == []
