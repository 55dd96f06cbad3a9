"""While the book is served, a page is built again if anything shown on it changes."""

import os
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bookbinder.publishing.hooks import on_files
from bookbinder.writing import write_whole

SHOWN = [
    *("mkdocs.yml", "theme/main.html", "src/tested_transformer/masks.py"),
    *("docs/assets/figures/page/curve.svg", "src/transformer_book/js/engine.js"),
]
HTML = "site/page/index.html"


def test_a_page_is_built_again_if_what_pages_show_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = MkDocsConfig()
    config.load_dict({"docs_dir": "docs", "site_dir": "site", "site_name": "Book"})
    files = Files([File("page.md", "docs", "site", use_directory_urls=True)])
    for changed in (*SHOWN, "README.md"):
        for name in ("docs/page.md", HTML, *SHOWN, "README.md"):
            write_whole(Path(name), "# Page")
            os.utime(name, (1.0, 2.0 if name == HTML else 1.0 + 2 * (name == changed)))
        monkeypatch.setenv("BOOKBINDER_PREVIEW", "")
        on_files(files, config)
        assert Path(HTML).exists()
        monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
        on_files(files, config)
        assert Path(HTML).exists() is (changed not in SHOWN), changed
