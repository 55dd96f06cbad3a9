"""A page as a Jupyter notebook, made of exactly the blocks that the tests run.

Its outputs are those that the page shows, so a notebook that nobody has run yet reads
like the page. A chain of blocks that starts anew stands behind a cell that empties the
namespace: the tests run it without what came before.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import Book, Leaf
from bookbinder.publishing.passages import Passage, linked
from bookbinder.publishing.twins import place_in_site
from bookbinder.writing import write_whole
from bookbinder.page import Block, Page
from bookbinder.running.figures import figures_folder

__all__ = ["ANEW", "NOTEBOOK", "SETUP", "gather_notebooks", "notebook", "notebook_name"]

NOTEBOOK = "notebook.ipynb"

# Tags, by which the cells that are not on the page can be told.
SETUP, ANEW = "setup", "starts-anew"

_RESET = "%reset -f"
_PACKAGE = "tested_transformer"
# What a page may import beside the library, and how it is asked for.
_EXTRAS = {
    "matplotlib": "plots",
    f"{_PACKAGE}.plots": "plots",
    "jax": "jax",
    "flax": "jax",
    "tokenizers": "bpe",
}
_CHECKOUT = "tested-transformer-book"

Cell = dict[str, Any]


def notebook_name(leaf: Leaf) -> str:
    """Give the path of a page's notebook on the branch of notebooks."""
    return f"{leaf.folder or 'index'}.ipynb"


def notebook(
    leaf: Leaf, parts: list[Passage], book: Book, home: Addresses, root: Path, ref: str
) -> str:
    """Write the notebook of a page.

    Args:
        leaf: The page.
        parts: Its passages.
        book: The book that it is from.
        home: Where the book lives.
        root: The repository.
        ref: The commit to install the library from, "" for the newest.
    """
    cells = [_setup(leaf.page, home, ref), *_cells(leaf, parts, home, root)]
    where = f"[{book.name}]({home.site})" if home.site else book.name
    cells.append(_prose(f"*From {where}. {book.license}*"))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    content = {
        "cells": cells,
        "metadata": {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def gather_notebooks(site: Path, book: Book, folder: Path) -> None:
    """Copy the notebooks of a published site to where the branch has them."""
    for leaf in book.leaves:
        if leaf.page.blocks:
            content = (leaf.file(site).parent / NOTEBOOK).read_bytes()
            write_whole(folder / notebook_name(leaf), content)


def _cells(
    leaf: Leaf, parts: list[Passage], home: Addresses, root: Path
) -> Iterator[Cell]:
    """Give the cells of a page, prose joined to what it stands beside."""
    page = leaf.page
    blocks = {block.line: block for block in page.blocks}
    anew = {chain.line for chain in page.chains[1:]}
    drawings = _drawings(page, root)

    def address(target: str) -> str:
        place, _, fragment = target.partition("#")
        if "://" in target:
            return target
        if not home.site or not place:
            # Headings of a notebook have other anchors, or none.
            return ""
        where = f"{home.site}{place_in_site(leaf, place)}"
        return f"{where}#{fragment}" if fragment else where

    prose: list[str] = []
    for part in parts:
        if part.kind == "run":
            if prose:
                yield _prose("\n\n".join(prose))
            prose = []
            block = blocks[part.line]
            if part.line in anew:
                yield _code(_RESET, tags=[ANEW])
            yield _code(block.code, outputs=_outputs(block, drawings))
        elif part.kind == "prose":
            text = linked(_without_pictures(part.text), address)
            prose += [text] if text.strip() else []
        elif part.kind == "shown":
            prose.append(part.markdown())
    if prose:
        yield _prose("\n\n".join(prose))


def _setup(page: Page, home: Addresses, ref: str) -> Cell:
    """Write the cell that installs what the page imports.

    A page that reads results or models out of the repository gets a copy of that, too.
    """
    extras, packages = _imports(page)
    wanted = f"[{','.join(extras)}]" if extras else ""
    if not home.repository:
        lines = [
            "# This copy of the book does not know where its repository is. In a clone",
            f'# of it, install the library: pip install ".{wanted}"',
        ]
        lines += [f"%pip install --quiet {' '.join(packages)}"] if packages else []
        return _code("\n".join(lines), tags=[SETUP])
    url = f"git+{home.repository}" + (f"@{ref}" if ref else "")
    library = f'"tested-transformer{wanted} @ {url}"'
    lines = [" ".join(["%pip install --quiet", library, *packages])]
    if any("__file__" in block.code for block in page.blocks):
        checkout = f" && git -C {_CHECKOUT} checkout --quiet {ref}" if ref else ""
        lines += [
            "# This page reads results that the repository keeps.",
            f"!git clone --quiet {home.repository} {_CHECKOUT}{checkout}",
            f'__import__("sys").path.insert(0, "{_CHECKOUT}/src")',
        ]
    return _code("\n".join(lines), tags=[SETUP])


def _imports(page: Page) -> tuple[list[str], list[str]]:
    """Give the extras of the library, and the other packages, that a page imports."""
    extras: set[str] = set()
    packages: set[str] = set()
    importing = (block for block in page.blocks if "import" in block.code)
    for block in importing:
        for node in ast.walk(ast.parse(block.code)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                extra = _EXTRAS.get(name) or _EXTRAS.get(top)
                known = {_PACKAGE, "torch", "jaxtyping", "safetensors", "rich"}
                if extra:
                    extras.add(extra)
                elif top not in known | sys.stdlib_module_names:
                    packages.add(top.replace("_", "-"))
    return sorted(extras), sorted(packages)


def _drawings(page: Page, root: Path) -> dict[int, list[tuple[str, str]]]:
    """Give for each block the pictures it draws, each as its text and its SVG."""
    drawings: dict[int, list[tuple[str, str]]] = {}
    for image in page.images:
        name = PurePosixPath(image.target).name
        file = figures_folder(page, root) / name
        above = [block for block in page.blocks if block.line < image.line]
        naming = [block for block in page.blocks if f'"{name}"' in block.code]
        block = [*above, *naming][-1]
        drawing = file.read_text("utf-8")
        # A cell shows an element, not a document: no prolog.
        svg = drawing[drawing.index("<svg") :]
        drawings.setdefault(block.line, []).append((image.alt, svg))
    return drawings


def _outputs(block: Block, drawings: dict[int, list[tuple[str, str]]]) -> list[Cell]:
    outputs: list[Cell] = []
    if block.output:
        text = _lines(block.output.text)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    for alt, svg in drawings.get(block.line, []):
        data = {"image/svg+xml": _lines(svg), "text/plain": _lines(alt)}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return outputs


def _without_pictures(text: str) -> str:
    """Leave out the lines of pictures: they stand with the blocks that draw them."""
    lines = (line for line in text.split("\n") if not line.startswith("!["))
    return "\n".join(lines).strip("\n")


def _prose(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _code(
    code: str, *, tags: list[str] | None = None, outputs: list[Cell] | None = None
) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": tags} if tags else {},
        "outputs": outputs or [],
        "source": _lines(code.removesuffix("\n")),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
