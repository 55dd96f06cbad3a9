"""Parts of pages that act: asked for by their page alone, and never without words."""

import pytest
import yaml
from bs4 import BeautifulSoup
from markdown import Markdown

from bookbinder.drawing.live import format_live, live_problem
from bookbinder.drawing.undrawn import UndrawnError

RIGHT = {
    "name": "watch",
    "label": 'A "GPT" at work',
    "script": "../assets/js/gpt/watch.js",
    "style": "../assets/css/watch.css",
    "without": "1 < 2",
}


def rendered(**changes: str) -> BeautifulSoup:
    source = yaml.safe_dump({**RIGHT, **changes})
    return BeautifulSoup(format_live(source, "live", "", {}, Markdown()), "html.parser")


def test_a_place_a_script_and_a_stylesheet() -> None:
    page = rendered()
    section = page.find("section")
    assert section
    assert section["data-live"] == "watch"
    assert section["aria-label"] == 'A "GPT" at work'
    assert section.get_text() == "1 < 2"
    # From chapters/page/index.html to assets/.
    script, style = page.find("script"), page.find("link")
    assert script
    assert style
    assert (script["type"], script["src"]) == (
        "module",
        "../../assets/js/gpt/watch.js",
    )
    assert style["href"] == "../../assets/css/watch.css"


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_may_be_missing(name: str) -> None:
    source = yaml.safe_dump({**RIGHT, name: " "})
    assert str(live_problem(source)).startswith(f"has no {name}, ")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a: [", "is not YAML: while parsing"),
        ("words", "is made of entries: name, label, script, style, without"),
        (
            yaml.safe_dump({**RIGHT, "onclick": "x"}),
            "has an unknown entry, onclick",
        ),
        (
            yaml.safe_dump({**RIGHT, "style": "../assets/css/gone.css"}),
            "names ../assets/css/gone.css, and docs/assets/css/ has no such file",
        ),
        (
            yaml.safe_dump(
                {**RIGHT, "script": "../../src/bookbinder/drawing/drawing.js"}
            ),
            "names ../../src/bookbinder/drawing/drawing.js, "
            "and docs/assets/js/ has no such file",
        ),
    ],
)
def test_what_is_wrong_is_said(source: str, reason: str) -> None:
    assert str(live_problem(source)).startswith(reason)
    with pytest.raises(UndrawnError, match="live part"):
        format_live(source, "live", "", {}, Markdown())
