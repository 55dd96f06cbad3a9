"""A name that is missing: where on the page it is made, or which one was meant."""

import pytest

from bookbinder.reading.pages import read_page
from bookbinder.running.missing import remedy

PAGE = """\
```python
from math import floor as down

size = 3


def area(width):
    return width**2
```

```python
sizes = [1, 2]
```
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("size", "the block of line 1 has it: go on from it with <!--pytest"),
        ("area", "the block of line 1 has it: go on from it with <!--pytest"),
        ("down", "the block of line 1 has it: go on from it with <!--pytest"),
        ("width", "make it in this block, or import it"),
        ("sizs", "sizes?"),
        ("other", "make it in this block, or import it"),
    ],
)
def test_a_name_is_looked_for_above_and_then_beside(name: str, words: str) -> None:
    page = read_page(PAGE, "page.md")
    told = remedy(page, page.chains[1], NameError("missing", name=name))
    assert told.startswith(words)


def test_a_name_of_a_later_block_is_no_help() -> None:
    page = read_page(PAGE, "page.md")
    told = remedy(page, page.chains[0], NameError("missing", name="sizes"))
    assert told.startswith("size?")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from fractions import Fracton", "Fraction?"),
        ("from fractions import Nothing", ""),
        ("import nowhere_at_all", ""),
        ("1 / 0", ""),
    ],
)
def test_an_import_with_a_slip_is_mended(line: str, told: str) -> None:
    page = read_page(PAGE, "page.md")
    with pytest.raises((ImportError, ZeroDivisionError)) as caught:
        exec(line, {})
    assert remedy(page, page.chains[0], caught.value) == told
