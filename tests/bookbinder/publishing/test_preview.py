"""While the book is served, a page is built again if anything shown on it changes."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bookbinder.publishing.preview import on_files, on_post_build
from bookbinder.writing import write_whole

PAGE = """\
# Page

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```

![A curve](../assets/figures/page/curve.svg)

::: tested_transformer.caches
"""
SHOWN = (
    *("mkdocs.yml", "theme/main.html", "src/tested_transformer/masks.py"),
    *("docs/assets/figures/page/curve.svg", "src/tested_transformer/caches/new.py"),
)


@pytest.mark.parametrize(
    ("changed", "previewing", "again"),
    [
        *((name, True, True) for name in SHOWN),
        (SHOWN[0], False, False),
        ("src/tested_transformer/order.py", True, False),
        ("docs/assets/figures/other/curve.svg", True, False),
    ],
)
def test_a_page_is_built_again_if_what_it_shows_has_changed(
    changed: str,
    previewing: bool,
    again: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1" if previewing else "")
    source, made = tmp_path / "docs/page.md", tmp_path / "site/page/index.html"
    for file in (source, made, *(tmp_path / name for name in {*SHOWN, changed})):
        write_whole(file, PAGE)
        os.utime(file, (1.0, 1.0))
    os.utime(made, (2.0, 2.0))
    os.utime(tmp_path / changed, (3.0, 3.0))
    page = SimpleNamespace(abs_src_path=str(source), abs_dest_path=str(made))
    files = SimpleNamespace(documentation_pages=lambda: [page])
    on_files(files, SimpleNamespace(config_file_path=str(tmp_path / "mkdocs.yml")))
    assert made.is_file() is not again


def test_what_changes_during_a_build_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    source, made = tmp_path / "docs/page.md", tmp_path / "site/page/index.html"
    write_whole(source, PAGE)
    page = SimpleNamespace(abs_src_path=str(source), abs_dest_path=str(made))
    files = SimpleNamespace(documentation_pages=lambda: [page])
    config = SimpleNamespace(
        config_file_path=str(tmp_path / "mkdocs.yml"), site_dir=str(tmp_path / "site")
    )
    on_files(files, config)
    write_whole(tmp_path / SHOWN[2], "changed after it was read")
    write_whole(made, "the HTML, written last")
    on_post_build(config)
    on_files(files, config)
    assert not made.exists()
