"""What is published without comments and blanks says what the repository says."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]

# All that a browser understands of a stylesheet.
RULES = """(text) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  return [...sheet.cssRules].map((rule) => rule.cssText);
}"""


@pytest.mark.browser
def test_a_browser_reads_the_same_rules(built: Path, page: Page) -> None:
    for file in sorted(ROOT.glob("docs/assets/css/*.css")):
        published = built / file.relative_to(ROOT / "docs")
        written, read = (
            [re.sub(r"\s", "", rule) for rule in page.evaluate(RULES, text)]
            for text in (file.read_text("utf-8"), published.read_text("utf-8"))
        )
        assert written == read
        assert len(written) > 2
