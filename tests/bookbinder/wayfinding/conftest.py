"""A small book, and what the engines leave in the converter of one of its pages."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

Made = Callable[..., BeautifulSoup]


class _Page(Treeprocessor):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = SimpleNamespace(src_uri=path)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Give what turns the text of a page into HTML, as a page of a book."""
    (tmp_path / "docs/chapters").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def convert(
        text: str, extension: Extension, page: str = "chapters/01.md"
    ) -> BeautifulSoup:
        (tmp_path / "docs" / page).parent.mkdir(exist_ok=True)
        (tmp_path / "docs" / page).write_text(text, "utf-8")
        kinds = ["pymdownx.highlight", "pymdownx.superfences", "tables"]
        kinds.append("pymdownx.blocks.details")
        md = Markdown(extensions=[*kinds, extension])
        if page != "none.md":
            md.treeprocessors.register(_Page(page), "relpath", 0)
        return BeautifulSoup(md.convert(text), "html.parser")

    return convert
