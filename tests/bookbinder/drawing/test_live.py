"""Parts of pages that act: asked for by their page alone, and never without words."""

import pytest
import yaml
from bs4 import BeautifulSoup
from markdown import Markdown

from bookbinder.drawing.live import format_live
from bookbinder.drawing.undrawn import UndrawnError

RIGHT = {
    "name": "watch",
    "label": 'A "GPT" at work',
    "script": "../assets/js/gpt/watch.js",
    "style": "../assets/css/watch.css",
    "without": "1 < 2",
}


def test_a_place_a_script_and_a_stylesheet() -> None:
    html = format_live(yaml.safe_dump(RIGHT), "live", "", {}, Markdown())
    page = BeautifulSoup(html, "html.parser")
    section, script, style = page.section, page.script, page.link
    assert section
    assert script
    assert style
    assert section["data-live"] == "watch"
    assert section["aria-label"] == 'A "GPT" at work'
    assert section.get_text() == "1 < 2"
    # From chapters/page/index.html to assets/.
    assert script["type"] == "module"
    assert script["src"] == "../../assets/js/gpt/watch.js"
    assert style["href"] == "../../assets/css/watch.css"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a: [", "is not name: …, label: …, script: …, style: …, without: …"),
        ("words", "is not name: …"),
        (yaml.safe_dump({**RIGHT, "label": ""}), "is not name: …"),
        (yaml.safe_dump({**RIGHT, "onclick": "x"}), "is not name: …"),
        (
            yaml.safe_dump({**RIGHT, "style": "../assets/css/gone.css"}),
            "docs/assets/css/ has no file ../assets/css/gone.css",
        ),
        (
            yaml.safe_dump({**RIGHT, "script": "../../src/bookbinder/a.js"}),
            "docs/assets/js/ has no file ../../src/bookbinder/a.js",
        ),
    ],
)
def test_what_is_wrong_is_said(source: str, reason: str) -> None:
    with pytest.raises(UndrawnError) as caught:
        format_live(source, "live", "", {}, Markdown())
    assert reason in str(caught.value)
