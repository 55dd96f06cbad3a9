"""What is said to be a default is one."""

import pytest

from bookbinder.names.defaults import default_problems
from bookbinder.reading.pages import read_page


@pytest.mark.parametrize(
    ("right", "wrong", "default"),
    [
        ("`return_weights`, by default `False`", "`return_weights`, by default `True`",
         "`return_weights`: its default is False, and not True"),
        ("`need_weights=True`, the default", "`need_weights=False`, the default",
         "`need_weights`: its default is True, and not False"),
        # The last of its arguments has one, the first two have none.
        ("`gradient=0.0`, the default", "`loss=0.0`, the default",
         "`loss`: its default is none, and not 0.0"),
        ("`fused=True`, the default", "`nhead=8`, the default",
         "`nhead`: its default is none, and not 8"),
    ],
)  # fmt: skip
def test_a_default_is_that_of_a_signature(right: str, wrong: str, default: str) -> None:
    def problems(words: str) -> list[str]:
        page = read_page(f"# Page\n\nHere {words} is asked for.\n", "p.md")
        return [str(each) for each in default_problems(page)]

    assert problems(right) == []
    assert problems(wrong) == [f"p.md:3: {default}"]
