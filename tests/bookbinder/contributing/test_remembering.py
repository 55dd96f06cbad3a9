"""A run that is used again says what a new run would say, at the lines of now."""

from pathlib import Path

import pytest

from bookbinder.contributing.remembering import Ran, key_of, moved_to, run
from bookbinder.page import Chain, Page, read_page

ROOT = Path(__file__).parents[3]
PAGE = """\
# A page
{above}
```python
def half(x):
    return x / 2 if x else undefined


print(half(3))
```

<!-- holds: "1.5" = half(3) -->
{between}
<!--pytest-codeblocks:cont-->
```python
{last}
```

<!-- holds: "two" = half(4) -->
"""
MORE = "\nWords, and more words.\n\nAnd a paragraph.\n"


def page_of(above: str = "", between: str = "", last: str = "y = half(4)") -> Page:
    return read_page(PAGE.format(above=above, between=between, last=last), "page.md")


def ran(page: Page) -> tuple[Chain, Ran]:
    (chain,) = page.chains
    return chain, run(page, chain, ROOT)


@pytest.mark.parametrize("last", ["y = half(4)", "y = half(4)\nz = 1 / 0"])
@pytest.mark.parametrize(
    "moved", [{"above": MORE}, {"between": MORE}, {"above": MORE, "between": MORE}]
)
def test_a_run_is_moved_with_its_blocks(moved: dict[str, str], last: str) -> None:
    chain, before = ran(page_of(last=last))
    there, new = ran(page_of(**moved, last=last))
    assert key_of(there) == key_of(chain)
    got = moved_to(before, there)
    assert (got.blocks, got.bound) == (new.blocks, new.bound) != (before.blocks,)
    assert got.printed == new.printed
    assert got.error == new.error
    for name in ("chains", "lines", "drawn", "idle", "notes", "seen"):
        assert getattr(got.evidence, name) == getattr(new.evidence, name), name


def test_a_run_that_has_not_moved_is_given_as_it_is() -> None:
    chain, before = ran(page_of())
    assert moved_to(before, chain) is before


def test_what_changes_a_run_changes_its_key() -> None:
    (chain,) = page_of().chains
    (other,) = page_of(last="y = half(5)").chains
    assert key_of(other) != key_of(chain)
    text = PAGE.format(above="", between="", last="y = half(4)")
    (bound,) = read_page(text.replace("half(4) -->", "half(6) -->"), "p.md").chains
    assert key_of(bound) != key_of(chain)
    (apart,) = read_page(text.replace('"two"', '"three"'), "p.md").chains
    assert key_of(apart) == key_of(chain)


def test_a_warning_breaks_a_run_off_as_it_does_in_the_tests() -> None:
    warned = "import warnings\nwarnings.warn('old')"
    chain, told = ran(page_of(last=warned))
    assert str(told.problem(page_of(), chain)) == "page.md:16: UserWarning: old"
    harmless = "import warnings\nwarnings.warn('os.fork() was called', RuntimeWarning)"
    assert ran(page_of(last=harmless))[1].error is None


def test_what_is_shown_is_compared_each_time() -> None:
    page = page_of()
    chain, before = ran(page)
    assert str(before.problem(page, chain)) == (
        "page.md:3: prints '1.5', but the page shows no output: make outputs"
    )
