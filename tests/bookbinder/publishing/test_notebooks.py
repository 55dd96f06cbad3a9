import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import Leaf, load_book
from bookbinder.publishing.notebooks import ANEW, SETUP, notebook, notebook_name
from bookbinder.publishing.passages import passages
from bookbinder.page import Block

ROOT = Path(__file__).parents[3]
BOOK = load_book(ROOT)
HOME = Addresses("https://me.github.io/book/", "https://github.com/me/book")
LEAVES = [leaf for leaf in BOOK.leaves if leaf.page.blocks]

Cells = list[dict[str, Any]]


def written(leaf: Leaf, home: Addresses = HOME, ref: str = "") -> str:
    parts = list(passages(leaf.page, ROOT))
    return notebook(leaf, parts, BOOK, home, ROOT, ref)


def chains_of(text: str) -> list[Cells]:
    """Give the cells that hold code, chain by chain, as the notebook says."""
    chains: list[Cells] = [[]]
    for cell in json.loads(text)["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or tags == [SETUP]:
            continue
        if tags == [ANEW]:
            assert cell["source"] == ["%reset -f"]
            chains.append([])
        else:
            chains[-1].append(cell)
    return chains


def stored(cell: dict[str, Any]) -> str:
    return "".join(
        "".join(output["text"])
        for output in cell["outputs"]
        if output["output_type"] == "stream"
    )


def shown(block: Block) -> str:
    return block.output.text if block.output else ""


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_a_notebook_is_the_blocks_that_the_tests_run(leaf: Leaf) -> None:
    text = written(leaf)
    nbformat.validate(nbformat.reads(text, as_version=4))
    assert written(leaf) == text
    chains = chains_of(text)
    assert [
        [("".join(cell["source"]) + "\n", stored(cell)) for cell in chain]
        for chain in chains
    ] == [
        [(block.code, shown(block)) for block in chain.blocks]
        for chain in leaf.page.chains
    ]
    drawn = [
        "".join(output["data"]["text/plain"])
        for chain in chains
        for cell in chain
        for output in cell["outputs"]
        if output["output_type"] == "display_data"
    ]
    assert sorted(drawn) == sorted(image.alt for image in leaf.page.images)


def test_prose_listings_and_links_are_in_markdown_cells() -> None:
    leaf = next(leaf for leaf in LEAVES if leaf.name == "06-no-peeking")
    cells = json.loads(written(leaf))["cells"]
    prose = "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )
    assert prose.startswith("# No peeking\n")
    assert "From `src/tested_transformer/masks.py`:\n\n```python\ndef causal" in prose
    assert "[Notation](https://me.github.io/book/notation/)" in prose
    assert "](03-" not in prose
    assert "<!--" not in prose
    assert "![" not in prose
    assert prose.endswith(
        "*From [The Tested Transformer](https://me.github.io/book/). "
        "Text under CC BY 4.0, code under MIT.*"
    )
    at_home = written(leaf, Addresses())
    assert "In the letters of Notation, with" in at_home


def first_cell(name: str, home: Addresses, ref: str = "") -> list[str]:
    leaf = next(leaf for leaf in LEAVES if leaf.name == name)
    cell = json.loads(written(leaf, home, ref))["cells"][0]
    assert (cell["cell_type"], cell["metadata"]) == ("code", {"tags": [SETUP]})
    return "".join(cell["source"]).split("\n")


def test_the_first_cell_installs_what_the_page_imports() -> None:
    url = "git+https://github.com/me/book"
    assert first_cell("06-no-peeking", HOME, "abc") == [
        f'%pip install --quiet "tested-transformer[plots] @ {url}@abc"'
    ]
    line, *_ = first_cell("23-five-implementations", HOME)
    assert line.startswith('%pip install --quiet "tested-transformer[jax')
    assert f'@ {url}"' in line


def test_a_page_that_reads_the_repository_gets_a_copy_of_it() -> None:
    lines = first_cell("22-pruning", HOME, "abc")
    checkout = "tested-transformer-book"
    assert lines[1:] == [
        "# This page reads results that the repository keeps.",
        f"!git clone --quiet https://github.com/me/book {checkout}"
        f" && git -C {checkout} checkout --quiet abc",
        f'__import__("sys").path.insert(0, "{checkout}/src")',
    ]


def test_without_a_repository_the_first_cell_says_what_to_do() -> None:
    lines = first_cell("06-no-peeking", Addresses())
    assert lines == [
        "# This copy of the book does not know where its repository is. In a clone",
        '# of it, install the library: pip install ".[plots]"',
    ]


def test_notebooks_have_names_of_their_own() -> None:
    names = [notebook_name(leaf) for leaf in LEAVES]
    assert "chapters/06-no-peeking.ipynb" in names
    assert "index.ipynb" in names
    assert len(set(names)) == len(names)


RUNNER = """
import contextlib, io, json, sys
namespace, printed = {}, []
for cell in json.load(open(sys.argv[1]))["cells"]:
    tags = cell["metadata"].get("tags")
    if tags == ["starts-anew"]:
        namespace = {}
    elif cell["cell_type"] == "code" and not tags:
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec("".join(cell["source"]), namespace)
        printed.append(stream.getvalue())
json.dump(printed, open(sys.argv[2], "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "03-attention-by-hand"])
def test_a_notebook_runs_cell_by_cell_in_a_fresh_interpreter(
    name: str, tmp_path: Path
) -> None:
    leaf = next(leaf for leaf in LEAVES if leaf.name == name)
    text = written(leaf)
    (tmp_path / "book.ipynb").write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "book.ipynb", "printed.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads((tmp_path / "printed.json").read_text("utf-8"))
    cells = [cell for chain in chains_of(text) for cell in chain]
    assert printed == [stored(cell) for cell in cells]
