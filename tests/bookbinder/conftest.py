"""An empty book, and pages that its extension turns into HTML."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor

from bookbinder.drawing.diagrams import format_diagram
from bookbinder.writing import write_whole

Render = Callable[..., BeautifulSoup]
FENCE = {"name": "mermaid", "class": "mermaid", "format": format_diagram}
CONFIGS = {
    "pymdownx.arithmatex": {"generic": True},
    "pymdownx.superfences": {"custom_fences": [FENCE]},
}
OTHERS = ["pymdownx.highlight", "tables", "pymdownx.blocks.details"]


class _Page(Treeprocessor):
    """Where MkDocs leaves the page that is built."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = SimpleNamespace(src_uri=path)


@pytest.fixture
def rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Render:
    """Return a function that renders a text, perhaps as a page of the book."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)

    def render(text: str, page: str = "") -> BeautifulSoup:
        md = Markdown(
            extensions=[*CONFIGS, *OTHERS, "bookbinder.extension"],
            extension_configs=CONFIGS,
        )
        if page:
            write_whole(Path("docs", page), text)
            md.treeprocessors.register(_Page(page), "relpath", 0)
        return BeautifulSoup(md.convert(text), "html.parser")

    return render
