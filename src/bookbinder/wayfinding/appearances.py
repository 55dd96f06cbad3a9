"""Where the pages of the book list, and where they use, what the library offers.

A name of the library is what a module lists in its ``__all__``, a folder in that of its
``__init__``: ``tested_transformer.masks.causal_mask``. A page lists it if one of its
listings shows lines of it, and uses it if one of its runs imports it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from mkdocs.utils import meta

from bookbinder.listings import ListingError, find_section
from bookbinder.page import Page, read_page

__all__ = ["Appearances", "appearances_in", "exports", "module_of", "pages_of"]

PACKAGE = "tested_transformer"
_HOME = f"src/{PACKAGE}/"
_REFERENCE = "reference/"


@dataclass
class Appearances:
    """What a page shows of the library.

    Attributes:
        title: The title of the page.
        listed: For each name that it lists, the heading above the first listing.
        used: The names that its runs import.
        listings: For each listing of a module, in their order, the names it shows.
    """

    title: str = ""
    listed: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])
    listings: list[list[str]] = field(default_factory=list[list[str]])


def exports(root: Path) -> dict[str, frozenset[str]]:
    """Give what each module of the library lists as its own, by the module's name."""
    return _exports(root, _changed(root))


def _changed(root: Path) -> int:
    """Tell one state of the library from the next, while the book is served."""
    return max(file.stat().st_mtime_ns for file in (root / _HOME).rglob("*.py"))


@cache
def _exports(root: Path, changed: int) -> dict[str, frozenset[str]]:
    library = root / _HOME
    files = [*library.glob("*.py"), *library.glob("*/__init__.py")]
    return {
        name: frozenset(_listed(file))
        for file in sorted(files)
        for name in [module_of(file.relative_to(root).as_posix())]
        if name
    }


def module_of(path: str) -> str:
    """Give the module that a source file belongs to; a folder of files is one."""
    inside = path.removeprefix(_HOME).removesuffix(".py").split("/")[0]
    return "" if inside == "__init__" or not path.startswith(_HOME) else inside


def _listed(file: Path) -> list[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                return list(ast.literal_eval(value))
            case _:
                pass
    return []


def pages_of(root: Path) -> dict[str, Appearances]:
    """Give what every page of the book shows, by its path within docs."""
    docs = root / "docs"
    return {
        path: appearances_in(file.read_text(encoding="utf-8"), root)
        for file in sorted(docs.rglob("*.md"))
        for path in [file.relative_to(docs).as_posix()]
        if not path.startswith(_REFERENCE)
    }


def appearances_in(text: str, root: Path) -> Appearances:
    """Read one page."""
    text, _ = meta.get_data(text)
    return _read(text.strip("\n"), root, _changed(root))


# Each page is asked for twice in a build: for itself, and for the reference.
@lru_cache(maxsize=256)
def _read(text: str, root: Path, changed: int) -> Appearances:
    page = read_page(text, "")
    anchors = page.anchors()
    offered = _exports(root, changed)
    found = Appearances(title=anchors.get("", "").replace("`", ""))
    headings = [*_headings(page, anchors)]
    for listing in page.listings:
        module = module_of(listing.path)
        if not module:
            continue
        names = [
            f"{PACKAGE}.{module}.{name}"
            for name in _shown(root, listing.path, listing.section)
            if name in offered.get(module, ())
        ]
        found.listings.append(names)
        above = [anchor for line, anchor in headings if line < listing.line]
        for name in names:
            found.listed.setdefault(name, above[-1] if above else "")
    for block in page.blocks:
        found.used |= {*_imported(block.code, offered, _gathered(root, changed))}
    return found


def _headings(page: Page, anchors: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Give the line and the anchor of each heading, in their order."""
    names = [anchor for anchor in anchors if anchor]
    inside = False
    for number, line in enumerate(page.lines, start=1):
        if line.startswith("```"):
            inside = not inside
        elif line.startswith("#") and not inside and names:
            yield number, names.pop(0)


def _shown(root: Path, path: str, section: str) -> list[str]:
    """Give the names at the top of a source file of which a section shows lines."""
    try:
        lines = find_section(root, path, section)
    except ListingError:
        return []  # The audit says so.
    tree = ast.parse(lines.file.read_text(encoding="utf-8"))
    return [
        name
        for node in tree.body
        for name in _defined(node)
        if node.lineno <= lines.last and (node.end_lineno or 0) >= lines.first
    ]


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name) | ast.ClassDef(name):
            return [name]
        case (
            ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name))
        ):
            return [name]
        case _:
            return []


def _imported(
    code: str, offered: dict[str, frozenset[str]], gathered: dict[str, str]
) -> Iterator[str]:
    """Give the full names of what is imported; what no module offers has none."""
    if PACKAGE not in code:
        return  # Most blocks go on from others, and to parse them takes its time.
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return  # The audit says so.
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, *path = node.module.split(".")
            for name in [alias.name for alias in node.names]:
                module = path[0] if path else gathered.get(name, "")
                if package == PACKAGE and name in offered.get(module, ()):
                    yield f"{PACKAGE}.{module}.{name}"


@cache
def _gathered(root: Path, changed: int) -> dict[str, str]:
    """Give the module of each name that the package itself offers."""
    tree = ast.parse((root / _HOME / "__init__.py").read_text(encoding="utf-8"))
    return {
        alias.name: node.module.split(".")[1]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
