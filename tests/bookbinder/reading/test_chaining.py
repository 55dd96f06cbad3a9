"""A block that goes on from another uses something of it, or begins anew."""

import pytest

from bookbinder.reading.chaining import chain_problems
from bookbinder.reading.pages import read_page

CONT = "<!--pytest-codeblocks:cont-->\n"


def problems(*blocks: str) -> list[str]:
    """Read a page whose blocks are one chain; give what is wrong with it."""
    text = "\n".join(f"{CONT}```python\n{block}\n```\n" for block in blocks)
    page = read_page(text.removeprefix(CONT), "page.md")
    assert page.problems == []
    return [str(problem) for problem in chain_problems(page)]


@pytest.mark.parametrize(
    "blocks",
    [
        ("x = 1", "print(x)"),
        ("import math", "print(math.pi)"),
        ("x = 1", "x += 1"),
        ("x = 1", "def f():\n    return x", "print(f())"),
        ("x = 1", "class A:\n    y = x"),
        ("x = 1", "print([x for _ in range(2)])"),
        # The second uses nothing, but the third wants both.
        ("x = 1", "y = 2", "print(x + y)"),
        # What is read in a comment is used as well.
        ("x = 1", 'y = 2\n```\n\n<!-- holds: "two" = 2 * x -->\n\n```python\nz = y'),
    ],
)
def test_a_block_that_uses_what_is_above_goes_on_from_it(blocks: tuple[str, ...]):
    assert problems(*blocks) == []


@pytest.mark.parametrize(
    "blocks",
    [
        ("x = 1", "print(2)"),
        ("import math", "import math\nprint(math.pi)"),
        ("x = 1", "def f(x):\n    return x\n\n\nprint(f(2))"),
        ("x = 1", "x = 2\nprint(x)"),
        ("x = 1", "y = 2", "print(y)"),
        ("def f():\n    x = 1", "f = g = 2\nprint(f)"),
    ],
)
def test_a_block_that_uses_nothing_of_it_begins_anew(blocks: tuple[str, ...]):
    line = blocks[0].count("\n") + 6
    assert problems(*blocks) == [
        f"page.md:{line}: cont, but nothing from here on uses what is made above: "
        "take it out"
    ]
