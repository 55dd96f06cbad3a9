"""The command of those who write takes their words, or says what it wanted."""

from pathlib import Path

import pytest

from bookbinder.__main__ import main


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
