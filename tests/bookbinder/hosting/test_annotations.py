"""What a run says of a page is shown at its line of a pull request."""

import json
import re
from pathlib import Path

import pytest

MATCHER = Path(__file__).resolve().parents[3] / ".github" / "annotations.json"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("docs/a-b.md:35: the page shows '1'", "docs/a-b.md 35 the page shows '1'"),
        ("README.md:9: xqz ==> the", "README.md 9 xqz ==> the"),
        ("docs/a.md:7:1 error MD018 No space", "docs/a.md 7 error MD018 No space"),
        ("FAILED docs/a.md::line 24 - docs/a.md:35: the page shows", None),
        ("E       AssertionError: docs/a.md:1: no", "docs/a.md 1 no"),
        ("tests/test_a.py:3: AssertionError", None),
    ],
    ids=["pytest", "codespell", "markdownlint", "summary", "assert", "Python"],
)
def test_what_is_said_of_a_page_is_shown_at_its_line(
    line: str, found: str | None
) -> None:
    (pattern,) = json.loads(MATCHER.read_text("utf-8"))["problemMatcher"][0]["pattern"]
    match = re.search(pattern["regexp"], line)
    places = pattern["file"], pattern["line"], pattern["message"]
    assert (match and " ".join(match.group(*places))) == found
