"""Find out which pages list, and which use, each name of the library.

A name of the library is one in the ``__all__`` of a module or, for a folder, of its
``__init__``: ``tested_transformer.masks.causal_mask``. The modules of ``book`` count
separately: ``book.plots``. A page lists a name if one of its listings shows lines of
it, and uses it if one of its runs imports it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from bookbinder.listings import ListingError, find_section
from bookbinder.page import Listing, read_page

__all__ = [
    "PACKAGE",
    "Appearances",
    "appearances_in",
    "exports",
    "pages_of",
    "reference_page",
]

PACKAGE = "tested_transformer"

_LISTED = re.compile(r"^__all__ = (\[.*?\])", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(rf"^ *from {PACKAGE}\.?([\w.]*) import (\([^)]*\)|.*)", re.M)


@dataclass
class Appearances:
    """The names of the library on one page.

    Attributes:
        title: The title of the page.
        listed: For each name that it lists, the heading above the first listing.
        used: The names that its runs import.
        listings: For each listing its module, and the first name that it shows, if any.
    """

    title: str = ""
    listed: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])
    listings: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def exports(root: Path) -> dict[str, list[str]]:
    """Return the public names of each module of the library, by module."""
    home = root / "src" / PACKAGE
    modules = {
        f"{prefix}{file.parent.name if file.stem == '__init__' else file.stem}": file
        for prefix, folder in (("", home), ("book.", home / "book"))
        for file in [*folder.glob("[!_]*.py"), *folder.glob("*/__init__.py")]
    }
    found = {
        name: _LISTED.search(modules[name].read_text()) for name in sorted(modules)
    }
    return {name: ast.literal_eval(m[1]) for name, m in found.items() if m}


def reference_page(module: str) -> str:
    """Return the reference page of a module, as a path within docs."""
    return f"reference/{module.rpartition('.')[2]}.md"


def _module(dotted: str, offered: Mapping[str, list[str]]) -> str:
    """Return the module of a dotted name within the package, or ""."""
    parts = dotted.split(".")
    return next((m for m in (".".join(parts[:2]), parts[0]) if m in offered), "")


def pages_of(root: Path) -> dict[str, Appearances]:
    """Return the appearances on every page of the book, by its path within docs."""
    docs = root / "docs"
    paths = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.md"))
    chapters = [path for path in paths if not path.startswith("reference/")]
    return {path: appearances_in(path, root) for path in chapters}


def appearances_in(path: str, root: Path) -> Appearances:
    """Return the appearances on the page at a path within docs."""
    offered = exports(root)
    page = read_page((root / "docs" / path).read_text("utf-8"), path)
    anchors = page.anchors()
    found = Appearances(title=anchors.pop("", ""))
    lines = [number for number, line in page.prose if line.startswith("#")]
    headings = [*zip(lines, anchors, strict=False)]
    for listing in page.listings:
        _, package, *within = [*listing.path.removesuffix(".py").split("/"), ""]
        module = _module(".".join(within), offered)
        if listing.language == "py" and package == PACKAGE and module:
            shown = _shown(root, listing)
            names = [f"{PACKAGE}.{module}.{n}" for n in shown if n in offered[module]]
            found.listings.append((module, names[0] if names else ""))
            above = ["", *(anchor for line, anchor in headings if line < listing.line)]
            for name in names:
                found.listed.setdefault(name, above[-1])
    init = (root / "src" / PACKAGE / "__init__.py").read_text("utf-8")
    gathered = {name: module for module, name in _imported(init)}
    for module, name in _imported("\n".join(block.code for block in page.blocks)):
        module = _module(module, offered) if module else gathered.get(name, "")
        if name in offered.get(module, []):
            found.used.add(f"{PACKAGE}.{module}.{name}")
    return found


def _imported(code: str) -> Iterator[tuple[str, str]]:
    """Return the module, if there is one, and the name of each import."""
    for module, names in _IMPORT.findall(code):
        yield from ((module, name) for name in re.findall(r"\w+", names))


def _shown(root: Path, listing: Listing) -> list[str]:
    """Return the top-level names of a source file of which a listing shows lines."""
    try:
        section = find_section(root, listing.path, listing.section)
    except ListingError:
        return []  # The audit reports it.
    names: list[str] = []
    for node in _statements(section.file, section.file.stat().st_mtime_ns):
        if node.lineno <= section.last and (node.end_lineno or 0) >= section.first:
            match node:
                case (
                    ast.FunctionDef(name)
                    | ast.ClassDef(name)
                    | ast.Assign(targets=[ast.Name(name)])
                    | ast.AnnAssign(target=ast.Name(name))
                ):
                    names.append(name)
                case _:
                    pass
    return names


# A file has many sections, and may change while the book is served.
@lru_cache(maxsize=256)
def _statements(file: Path, changed: int) -> list[ast.stmt]:
    return ast.parse(file.read_text("utf-8")).body
