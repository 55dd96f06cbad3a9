"""The command of those who write takes their words, or says what it wanted."""

import subprocess
import sys
from pathlib import Path

import pytest

from bookbinder.__main__ import ROOT, main


@pytest.mark.nightly
def test_a_page_of_the_book_has_no_fault() -> None:
    command = [
        sys.executable,
        "-m",
        "bookbinder",
        "page",
        "docs/chapters/no-peeking.md",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "no-peeking.md: nothing is wrong\n", done.stderr


def test_a_page_or_a_chapter_that_cannot_be_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["page", "gone.md"]) == 2
    assert main(["outputs", "gone.md"]) == 1
    assert main(["chapter", "*"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("page: wanted PAGE=docs/..., a page that is there,")
    assert printed.err.splitlines() == [
        f"{Path('gone.md').resolve()}: no such page",
        'chapter: give a title: make chapter NAME="Attention sinks"',
    ]
