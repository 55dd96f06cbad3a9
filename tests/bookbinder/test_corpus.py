"""Broken pages are refused with their line and reason; right ones are not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


BROKEN = {
    title: text.split("\n", maxsplit=1)
    for title, text in corpus("broken_pages.txt").items()
}
RIGHT = corpus("right_pages.txt")
SENTENCES = (
    Path(__file__).with_name("innocent_sentences.txt").read_text("utf-8").splitlines()
)


def problems(text: str, title: str = "page") -> list[str]:
    """Return ``line: reason`` for each problem."""
    stem = re.sub(r"\W+", "-", title.lower()).strip("-")
    found = page_problems(read_page(text, f"docs/chapters/{stem}.md"), ROOT)
    return [f"{each.line}: {each.reason}" for each in found]


@pytest.mark.parametrize("title", BROKEN)
def test_a_broken_page_is_refused(title: str) -> None:
    wanted, text = BROKEN[title]
    line, _, words = wanted.partition(": ")
    found = problems(text, title)
    told = [each for each in found if each.startswith(f"{line}: ")]
    assert any(words in each for each in told), found


@pytest.mark.parametrize("title", RIGHT)
def test_a_right_page_is_accepted(title: str) -> None:
    assert problems(RIGHT[title], title) == []


def test_ordinary_sentences_are_accepted() -> None:
    text = "\n\n".join(["# Title", "## A heading", *SENTENCES, "## A heading"])
    assert problems(f"{text}\n") == []


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
    told = ["3: raw HTML", "3: `tested_transformer.nothing`", "3: 12.345 appears in no"]
    ran = ["11: the page shows '2.5'", "15: NameError"]
    found = problems(MANY)
    assert [w for w in told + ran if not any(f.startswith(w) for f in found)] == []
    # With a fence that cannot be read, nothing is said that it may have caused.
    found = problems(MANY.replace("```text", "```txt"))
    wanted = [*told[:2], "9: <!--pytest-codeblocks:expected-output--> must stand"]
    assert len(found) == len(wanted)
    assert [w for w in wanted if not any(f.startswith(w) for f in found)] == []


# Each of these is told by another of the tests that a page has.
SEEN = (
    "a digit that is wrong",
    "an error in the middle of a block",
    "py where python is meant",
    "a picture that no block draws",
)


@pytest.mark.slow
def test_a_test_run_tells_what_is_wrong_and_where(tmp_path: Path) -> None:
    for number, title in enumerate(SEEN):
        (tmp_path / f"page{number}.md").write_text(BROKEN[title][1], "utf-8")
    (tmp_path / "right.md").write_text(RIGHT["tables"], "utf-8")
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir=."]
    command += ["-p", "no:cacheprovider", "--tb=short", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    for number, title in enumerate(SEEN):
        line, _, words = BROKEN[title][0].partition(": ")
        assert re.search(
            rf"^page{number}\.md:{line}: .*{re.escape(words)}", run.stdout, re.M
        ), run.stdout
    assert "right.md:" not in run.stdout
