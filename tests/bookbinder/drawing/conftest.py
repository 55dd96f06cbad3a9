"""An empty book, and pages that its extensions turn into HTML."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown

from bookbinder.drawing.diagrams import format_diagram

Render = Callable[[str], BeautifulSoup]


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Render:
    """Return a function that renders a page, in an empty book."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)

    def render(text: str) -> BeautifulSoup:
        fence = {"name": "mermaid", "class": "mermaid", "format": format_diagram}
        markdown = Markdown(
            extensions=[
                "pymdownx.arithmatex",
                "pymdownx.superfences",
                "bookbinder.drawing.extension",
            ],
            extension_configs={
                "pymdownx.arithmatex": {"generic": True},
                "pymdownx.superfences": {"custom_fences": [fence]},
            },
        )
        return BeautifulSoup(markdown.convert(text), "html.parser")

    return render
