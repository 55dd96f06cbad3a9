"""The time that a page takes is that of what is open on it."""

from pathlib import Path

import pytest

from bookbinder.page import read_page
from bookbinder.reading import minutes


def test_words_and_code_take_time_unless_they_are_folded() -> None:
    code = "```python\n" + "x = 1\n\n" * 15 + "```\n"
    for kind, expected in (("admonition", 2), ("details", 0)):
        text = f"/// {kind} | A title\n{'word ' * 180}\n{code}///\n"
        assert minutes(read_page(text, "page.md"), Path()) == pytest.approx(
            expected, abs=0.05
        )
