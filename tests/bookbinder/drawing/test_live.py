"""Parts of pages that act: asked for by their page alone, and never without words."""

import pytest
import yaml
from bs4 import BeautifulSoup

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
    page = BeautifulSoup(format_live(yaml.safe_dump(RIGHT)), "html.parser")
    assert page.select_one('section[data-live="watch"][aria-label*="GPT"]')
    assert page.get_text() == "1 < 2"
    # From chapters/page/index.html to assets/.
    assert page.select_one('section[data-script="../../assets/js/gpt/watch.js"]')
    assert page.select_one('script[type=module][src="../../assets/js/gpt/start.js"]')
    assert page.select_one('link[href="../../assets/css/watch.css"]')


def test_what_lacks_an_entry_is_refused() -> None:
    without = yaml.safe_dump({**RIGHT, "label": None})
    for source in ("a: [", "words", "name: watch", without):
        with pytest.raises(UndrawnError, match="is not name: …, label: …, script: …, "):
            format_live(source)
