"""What a page lists and uses of a small library, and of ours."""

from pathlib import Path

import pytest

from bookbinder.wayfinding.appearances import (
    appearances_in,
    exports,
    module_of,
    pages_of,
)
from bookbinder.wayfinding.quoted import appearance_line

ROOT = Path(__file__).parents[3]

MASKS = '''"""Masks."""

__all__ = ["LIMIT", "Window", "causal"]

# --8<-- [start:limit]
LIMIT = 5
# --8<-- [end:limit]


def causal():
    # --8<-- [start:inside]
    return 1
    # --8<-- [end:inside]


class Window:
    # --8<-- [start:method]
    def width(self):
        return _two()
    # --8<-- [end:method]


# --8<-- [start:private]
def _two():
    return 2
# --8<-- [end:private]
'''

PAGE = """# On masks

```python
from tested_transformer import causal
from tested_transformer.gpt import GPT, Unlisted
from elsewhere.masks import Window
```

## First

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:method"
```

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:private"
```

## First

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:inside"
```
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    library = tmp_path / "src/tested_transformer"
    (library / "gpt").mkdir(parents=True)
    (library / "__init__.py").write_text(
        'from tested_transformer.masks import causal\n\n__all__ = ["causal"]\n', "utf-8"
    )
    (library / "masks.py").write_text(MASKS, "utf-8")
    (library / "gpt/__init__.py").write_text('__all__ = ["GPT"]\n', "utf-8")
    (library / "gpt/model.py").write_text('__all__ = ["Unlisted"]\n', "utf-8")
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "docs/reference/masks.md").write_text(PAGE, "utf-8")
    (tmp_path / "docs/one.md").write_text(PAGE, "utf-8")
    return tmp_path


def test_a_module_offers_what_it_lists(root: Path) -> None:
    assert exports(root) == {"gpt": {"GPT"}, "masks": {"LIMIT", "Window", "causal"}}
    (root / "src/tested_transformer/gpt/__init__.py").write_text('__all__ = ["A"]\n')
    assert exports(root)["gpt"] == {"A"}, "a change is seen while the book is served"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/tested_transformer/masks.py", "masks"),
        ("src/tested_transformer/gpt/model.py", "gpt"),
        ("src/tested_transformer/__init__.py", ""),
        ("src/bookbinder/audit.py", ""),
    ],
)
def test_a_file_belongs_to_a_module(path: str, module: str) -> None:
    assert module_of(path) == module


def test_a_page_lists_what_it_shows_lines_of_and_uses_what_it_imports(
    root: Path,
) -> None:
    shown = appearances_in(PAGE, root)
    masks = "tested_transformer.masks."
    assert shown.title == "On masks"
    assert shown.listed == {masks + "Window": "first", masks + "causal": "first_1"}
    assert shown.listings == [[masks + "Window"], [], [masks + "causal"]]
    assert shown.used == {masks + "causal", "tested_transformer.gpt.GPT"}


def test_the_reference_leads_to_the_headings_above_listings(root: Path) -> None:
    pages = pages_of(root)
    assert list(pages) == ["one.md"]
    line = appearance_line("tested_transformer.masks.causal", pages)
    assert line == "**In the book**: listed in [On masks](../one.md#first_1)."
    line = appearance_line("tested_transformer.gpt.GPT", pages)
    assert line == "**In the book**: used in [On masks](../one.md)."
    assert appearance_line("tested_transformer.masks.LIMIT", pages) == ""


def test_our_own_chapter_on_the_causal_mask() -> None:
    text = (ROOT / "docs/chapters/06-no-peeking.md").read_text("utf-8")
    shown = appearances_in(text, ROOT)
    name = "tested_transformer.masks.causal_mask"
    assert shown.listed[name] == "the-mask"
    assert name in shown.used
