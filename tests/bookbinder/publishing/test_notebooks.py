import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any

import nbformat
import pytest

from bookbinder.outputs import compare
from bookbinder.publishing.book import Entry, load_book
from bookbinder.publishing.notebooks import ANEW, SETUP, notebook
from bookbinder.publishing.plain_markdown import passages
from bookbinder.publishing.records import Record
from bookbinder.running.state import fresh_state

ROOT = Path(__file__).parents[3]
BOOK = replace(
    load_book(ROOT, {}), site="https://me.org/book/", repository="https://me.org/r"
)
PAGES = {entry.name: entry for entry in BOOK.entries if entry.page.blocks}

Chain = tuple[str, list[dict[str, Any]]]


def written(entry: Entry) -> str:
    return notebook(entry, list(passages(entry.page, ROOT)), BOOK, ROOT)


def chains_of(text: str) -> list[Chain]:
    """Return the cell that starts each chain anew, and the chain's cells with code."""
    chains: list[Chain] = [("", [])]
    for cell in json.loads(text)["cells"]:
        tags = cell["metadata"].get("tags", [])
        if tags == [ANEW]:
            chains.append(("".join(cell["source"]), []))
        elif cell["cell_type"] == "code" and tags != [SETUP]:
            chains[-1][1].append(cell)
    return chains


def test_a_notebook_is_the_blocks_that_the_tests_run() -> None:
    for entry in [*PAGES.values()][::6]:
        text = written(entry)
        nbformat.validate(nbformat.reads(text, as_version=4))
        code: list[list[tuple[str, str]]] = []
        pictures: list[str] = []
        for _, cells in chains_of(text):
            code.append([])
            for cell in cells:
                printed = ("".join(out.get("text", "")) for out in cell["outputs"])
                code[-1].append(("".join(cell["source"]) + "\n", "".join(printed)))
                data = (out["data"] for out in cell["outputs"] if "data" in out)
                pictures += ("".join(picture["text/plain"]) for picture in data)
        assert code == [
            [(b.code, b.output.text if b.output else "") for b in chain.blocks]
            for chain in entry.page.chains
        ]
        assert sorted(pictures) == sorted(image.alt for image in entry.page.images)


def test_prose_listings_and_links_are_in_markdown_cells() -> None:
    cells = json.loads(written(PAGES["no-peeking"]))["cells"]
    prose = "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )
    assert prose.startswith("# No peeking: the causal mask\n")
    assert "From `src/tested_transformer/masks.py`:\n\n```python\ndef causal" in prose
    assert "[Padding](https://me.org/book/chapters/padding/)" in prose
    assert "](03-" not in prose
    assert "![" not in prose
    assert prose.endswith(f"*From [{BOOK.name}](https://me.org/book/). {BOOK.license}*")


def test_the_first_cell_installs_what_was_verified_and_is_imported() -> None:
    record = Record("", 0, 0, 0, [], "2.13.0", "3.11.7", "2026-11-02", "abc", False)

    def first(name: str, record: Record | None) -> str:
        cell = json.loads(written(replace(PAGES[name], record=record)))["cells"][0]
        return "".join(cell["source"])

    start = '%pip install --quiet "tested-transformer[plots] @ git+https://me.org/r'
    assert first("no-peeking", record) == f'{start}@abc"'
    assert first("five-implementations", record) == f'{start}@abc" flax jax'
    assert first("no-peeking", replace(record, changed=True)) == f'{start}"'
    assert first("no-peeking", None) == f'{start}"'


def printed_by(text: str) -> list[list[str]]:
    """Run the cells in order, in one process, and return what each chain printed.

    ``%reset -f`` clears the names and nothing else, as in IPython.
    """
    names: dict[str, object] = {}

    def run(code: str) -> str:
        names.setdefault("__MODULE__", "__main__")
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "<string>", "exec"), names)
        return printed.getvalue()

    outputs: list[list[str]] = []
    for start, cells in chains_of(text):
        if start:
            names.clear()
            assert run(start.removeprefix("%reset -f\n")) == ""
        outputs.append([run("".join(cell["source"])) for cell in cells])
    return outputs


# This one leaves a state behind that changes what a later run prints. Each night all
# are run, and for a change of one page, its own.
A_FEW = ("without-the-softmax", Path(environ.get("BOOK_PAGE", "")).stem)
RUN = {n: PAGES[n] for n in PAGES if n in A_FEW or environ.get("BOOK_NIGHTLY")}


@pytest.mark.slow
def test_a_notebook_prints_what_the_page_shows() -> None:
    for name, entry in RUN.items():
        with fresh_state():
            printed = printed_by(written(entry))
        for chain, outputs in zip(entry.page.chains, printed, strict=True):
            assert [*map(str, compare(entry.page, chain, outputs))] == [], name
