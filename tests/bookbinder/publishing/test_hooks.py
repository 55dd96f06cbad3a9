"""While the book is served, a page is built again if anything shown on it changes."""

import os
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bookbinder.publishing.hooks import on_files, on_post_build
from bookbinder.writing import write_whole

PAGE = """\
# Page

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```

![A curve](../assets/figures/page/curve.svg)

::: tested_transformer.caches
"""
SHOWN = [
    *("mkdocs.yml", "theme/main.html", "src/tested_transformer/masks.py"),
    *("docs/assets/figures/page/curve.svg", "src/tested_transformer/caches/new.py"),
]
NOT_SHOWN = ["src/tested_transformer/order.py", "docs/assets/figures/other/curve.svg"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MkDocsConfig:
    """A preview of one page, whose HTML is newer than all that it shows."""
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    monkeypatch.chdir(tmp_path)
    for name in ("docs/page.md", "site/page/index.html", *SHOWN, *NOT_SHOWN):
        write_whole(tmp_path / name, PAGE)
        os.utime(tmp_path / name, (1.0, 2.0 if name.startswith("site") else 1.0))
    config = MkDocsConfig()
    config.load_dict({"docs_dir": "docs", "site_dir": "site", "site_name": "Book"})
    return config


def is_built_again(config: MkDocsConfig) -> bool:
    on_files(Files([File("page.md", "docs", "site", use_directory_urls=True)]), config)
    return not Path("site/page/index.html").exists()


def test_a_page_is_built_again_if_what_it_shows_has_changed(
    config: MkDocsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed in (*SHOWN, *NOT_SHOWN):
        os.utime(changed, (3.0, 3.0))
        monkeypatch.setenv("BOOKBINDER_PREVIEW", "")
        assert not is_built_again(config)
        monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
        assert is_built_again(config) is (changed in SHOWN), changed
        os.utime(changed, (1.0, 1.0))
        write_whole(Path("site/page/index.html"), PAGE)
        os.utime("site/page/index.html", (2.0, 2.0))


def test_what_changes_during_a_build_is_built_again(config: MkDocsConfig) -> None:
    assert not is_built_again(config)
    write_whole(Path(SHOWN[2]), "changed after it was read")
    write_whole(Path("site/page/index.html"), "the HTML, written last")
    on_post_build(config)
    assert is_built_again(config)
