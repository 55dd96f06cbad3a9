"""Turn a page into a Jupyter notebook, made of exactly the blocks that the tests run.

Its outputs are those of the page, so that a notebook reads like the page before it is
run. Before each new chain of blocks, a cell clears the namespace and what an earlier
chain has set in PyTorch, because the tests run the chain without earlier blocks.
"""

import inspect
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

import nbformat

from bookbinder.page import Block, Link, Page
from bookbinder.places import PACKAGES
from bookbinder.publishing.book import Book, Entry, address_of
from bookbinder.publishing.plain_markdown import Passage
from bookbinder.running.state import THREADS, WRITTEN, as_started

_Node = dict[str, Any]  # a cell or an output, as in the file

# Tags that mark the cells that are not on the page.
SETUP, ANEW = "setup", "starts-anew"

_IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
# Packages that the library and its extra for plots install.
_INSTALLED = {
    *(*PACKAGES, "torch", "numpy", "jaxtyping", "safetensors", "rich", "matplotlib")
}


def notebook(entry: Entry, parts: list[Passage], book: Book, root: Path) -> str:
    """Return the notebook of a page, which installs the version that was verified."""
    setup = _code(_setup(entry, book), metadata={"tags": [SETUP]})
    where = f"[{book.name}]({book.site})" if book.site else book.name
    end = _prose(f"*From {where}. {book.license}*")
    cells: list[_Node] = [setup, *_cells(entry, parts, book, root), end]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    version = {"nbformat": 4, "nbformat_minor": 5}
    whole = nbformat.from_dict({**version, "cells": cells, "metadata": metadata})
    # Once: the functions that make cells and write notebooks each do so again.
    nbformat.validate(whole)
    return nbformat.v4.writes(whole) + "\n"


def colab_address(entry: Entry, book: Book) -> str:
    """Return the address that opens a notebook in Colab, which reads only from GitHub.

    The workflow of the site writes the notebooks to a branch of that name.
    """
    parts = urlsplit(book.repository)
    if parts.netloc != "github.com":
        return ""
    path = f"{parts.path.strip('/')}/blob/notebooks/{quote(entry.notebook)}"
    return f"https://colab.research.google.com/github/{path}"


def _setup(entry: Entry, book: Book) -> str:
    """Return the cell that installs the page's imports."""
    record, others = entry.record, _others(entry.page)
    commit = record.commit if record and not record.changed else ""
    library = f"git+{book.repository}" + (f"@{commit}" if commit else "")
    start = f'%pip install --quiet "tested-transformer[plots] @ {library}"'
    if not book.repository:
        start = (
            "# This copy of the book does not know where its repository is. In a clone"
            '\n# of it, install the library: pip install ".[plots]"'
        )
    return " ".join([start, *others])


def installation(page: Page, book: Book) -> str:
    """Return the command that installs what the runs of a page import, library first.

    It is "" if they do not need the library.
    """
    names = imported(page.blocks)
    if not names & {*PACKAGES}:
        return ""
    library = f"git+{book.repository}" if book.repository else "."
    drawn = any("transformer_book.plots" in block.code for block in page.blocks)
    if drawn or "matplotlib" in names:
        at = f"tested-transformer[plots] @ {library}" if book.repository else ".[plots]"
        library = f'"{at}"'
    command = " ".join(["pip install", library, *_others(page)])
    return command if book.repository else f"in a clone: {command}"


def imported(blocks: Iterable[Block]) -> set[str]:
    """Return the packages that some blocks import."""
    return {name for block in blocks for name in _IMPORT.findall(block.code)}


def _others(page: Page) -> list[str]:
    """Return what a page imports besides the library and what comes with it."""
    return sorted(imported(page.blocks) - _INSTALLED - sys.stdlib_module_names)


def _code(source: str, outputs: Iterable[_Node] = (), **more: Any) -> _Node:
    cell = {"cell_type": "code", "source": source, "outputs": [*outputs]}
    return {**cell, "execution_count": None, "metadata": {}, **more}


def _prose(source: str) -> _Node:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def _cells(
    entry: Entry, parts: list[Passage], book: Book, root: Path
) -> Iterator[_Node]:
    """Return the cells of a page, with adjacent prose joined."""
    links = [link for link in entry.page.links if "://" not in link.target]
    anew = {chain.line for chain in entry.page.chains[1:]}
    blocks = {block.line: block for block in entry.page.blocks}
    drawings = _drawings(entry.page, root)
    prose: list[str] = []
    for part in parts:
        if part.kind == "run":
            if prose:
                yield _prose("\n\n".join(prose))
            prose = []
            if part.line in anew:
                yield _anew()
            block = blocks[part.line]
            outputs = drawings.get(part.line, [])
            if block.output:
                printed = {"name": "stdout", "text": block.output.text}
                outputs = [{"output_type": "stream", **printed}, *outputs]
            yield _code(block.code.removesuffix("\n"), outputs)
        elif part.kind == "shown":
            prose.append(part.text)
        elif part.kind == "prose" and (text := _linked(part.text, links, entry, book)):
            prose.append(text)
    if prose:
        yield _prose("\n\n".join(prose))


@cache
def _anew_source() -> str:
    return inspect.getsource(as_started)


def _anew() -> _Node:
    """Return the cell before a run that starts anew: the state as the tests reset it.

    JupyterLab folds it.
    """
    source = _anew_source()
    call = f"{as_started.__name__}(seed={WRITTEN}, threads={THREADS})"
    folded = {"tags": [ANEW], "jupyter": {"source_hidden": True}}
    return _code(f"%reset -f\n\n{source}\n\n{call}", metadata=folded)


def _linked(prose: str, links: Iterable[Link], entry: Entry, book: Book) -> str:
    """Point links in some prose to the site, or remove them if it has no address.

    Pictures are left out, because they are with the blocks that draw them.
    """
    text = "\n".join(line for line in prose.split("\n") if not line.startswith("!["))
    for link in links:
        if (written := f"[{link.text}]({link.target})") not in text:
            continue
        path, mark, fragment = link.target.partition("#")
        words = link.text
        if book.site and path:  # A notebook's headings have other anchors, or none.
            target = posixpath.join(posixpath.dirname(entry.source), path)
            target = posixpath.normpath(target)
            if target.endswith(".md"):
                target = address_of(target)
            words = f"[{words}]({book.site}{target}{mark}{fragment})"
        text = text.replace(written, words)
    return text.strip("\n")


def _drawings(page: Page, root: Path) -> dict[int, list[_Node]]:
    """Return the pictures drawn by each block, by the block's line."""
    drawings: dict[int, list[_Node]] = {}
    for image in page.images:
        name = PurePosixPath(image.target).name
        above = [block for block in page.blocks if block.line < image.line]
        naming = [block for block in page.blocks if f'"{name}"' in block.code]
        drawing = (root / page.figures / name).read_text("utf-8")
        # A cell shows an element, not a document, so remove the prolog.
        svg = drawing[drawing.index("<svg") :]
        data = {"image/svg+xml": svg, "text/plain": image.alt}
        output = {"output_type": "display_data", "metadata": {}, "data": data}
        drawings.setdefault([*above, *naming][-1].line, []).append(output)
    return drawings
