import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.publishing.records import (
    Quoted,
    Span,
    foundations,
    fresh_record,
    make_record,
    record_file,
    write_record,
)
from bookbinder.page import Page, load_page
from bookbinder.running.blocks import run_chain


@pytest.fixture
def page(root: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.syspath_prepend(root / "src" / "tested_transformer")
    monkeypatch.delitem(sys.modules, "adding", raising=False)
    return load_page(root / "docs" / "chapters" / "01-sums.md", root)


@pytest.fixture
def evidence(page: Page, root: Path) -> Evidence:
    found = Evidence()
    for chain in page.chains:
        with found.gathered(chain, root):
            run_chain(chain)
    return found


def test_a_record_says_which_block_ran_which_line_first(
    page: Page, evidence: Evidence, root: Path
) -> None:
    record = make_record(page, evidence.first, root, foundations(root))
    assert (record.blocks, record.outputs, record.lines) == (3, 2, 6)
    assert record.torch == version("torch")
    # The signature, the docstring and the question stand before what block 2 ran.
    (listing,) = page.listings
    spans = (Span(1, 3, 1), Span(4, 5, 2), Span(6, 6, 1))
    assert record.listings == (Quoted(listing.line, 6, spans),)


def test_a_record_is_read_as_it_was_written(
    page: Page, evidence: Evidence, root: Path
) -> None:
    standing_on = foundations(root)
    record = make_record(page, evidence.first, root, standing_on)
    write_record(root, page, record)
    assert fresh_record(root, page, standing_on) == record
    assert record_file(root, page.path).name == "01-sums.json"


@pytest.mark.parametrize(
    "name",
    [
        "docs/chapters/01-sums.md",
        "src/tested_transformer/adding.py",
        "constraints.txt",
        "src/new.py",
    ],
)
def test_a_record_of_something_else_is_none(name: str, page: Page, root: Path) -> None:
    write_record(root, page, make_record(page, {}, root, foundations(root)))
    with (root / name).open("a") as file:
        file.write("\nnew = 1\n")
    again = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    assert fresh_record(root, again, foundations(root)) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"listings": [{}]}', "null"])
def test_a_file_that_is_no_record_is_none(text: str, page: Page, root: Path) -> None:
    file = record_file(root, page.path)
    file.parent.mkdir(parents=True)
    file.write_text(text, "utf-8")
    assert fresh_record(root, page, foundations(root)) is None


def test_what_python_left_behind_is_no_foundation(root: Path) -> None:
    before = foundations(root)
    (root / "src" / "__pycache__").mkdir()
    (root / "src" / "__pycache__" / "adding.pyc").write_bytes(b"0")
    assert foundations(root) == before
