"""Find out which pages list, and which use, each name of the library.

A name of the library is one in the ``__all__`` of a module or, for a folder, of its
``__init__``: ``tested_transformer.masks.causal_mask``. The material of the book,
``transformer_book``, has such names too, and so has ``attention_check``, which hands
all of them on itself. A page lists a name if one of its listings
shows lines of it, and uses it if one of its runs imports it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from bookbinder.listings import Section, listed_sections
from bookbinder.page import read_page
from bookbinder.places import PACKAGES

_LISTED = re.compile(r"^__all__ = (\[.*?\])", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(
    rf"^ *from ((?:{'|'.join(PACKAGES)})[\w.]*) import (\([^)]*\)|.*)", re.M
)


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
    """Return the public names of each module, by its dotted name."""
    source = root / "src"
    # What the package of the library exports has its home in one of the modules.
    files = [source / book / "__init__.py" for book in PACKAGES[1:]]
    for package in PACKAGES[:2]:
        files += (source / package).glob("[!_]*.py")
        files += (source / package).glob("*/__init__.py")
    offered: dict[str, list[str]] = {}
    for file in files:
        text = file.read_text("utf-8") if file.is_file() else ""
        name = ".".join(file.relative_to(source).with_suffix("").parts)
        if own := _own(text, name.partition(".")[0]):
            offered[name.removesuffix(".__init__")] = [*own]
    return dict(sorted(offered.items()))


@lru_cache(maxsize=256)  # each page asks for the names of all modules
def _own(text: str, package: str) -> tuple[str, ...]:
    """Return what a module of a package lists and does not hand on from another."""
    if not (names := _LISTED.search(text)):
        return ()
    handed_on = {n for m, n in _imported(text) if m.partition(".")[0] != package}
    return tuple(n for n in ast.literal_eval(names[1]) if n not in handed_on)


def reference_page(module: str, name: str = "") -> str:
    """Return the reference page of a module or a name in it, as a path within docs.

    A module with many names has several pages, of which each further one lists its own.
    """
    page = f"reference/{module.rpartition('.')[2]}"
    for further in sorted(Path("docs").glob(f"{page}-*.md")):
        if f"\n        - {name}\n" in further.read_text("utf-8"):
            return further.relative_to("docs").as_posix()
    return f"{page}.md"


def pages_of(root: Path) -> dict[str, Appearances]:
    """Return the appearances on every page of the book, by its path within docs."""
    docs = root / "docs"
    paths = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.md"))
    chapters = [path for path in paths if not path.startswith("reference/")]
    return {path: appearances_in(path, root) for path in chapters}


def appearances_in(path: str, root: Path) -> Appearances:
    """Return the appearances on the page at a path within docs."""
    offered = exports(root)

    def home(dotted: str) -> str:
        """Return the module that a dotted name is in, or ""."""
        parts = dotted.split(".")
        return next((m for m in (".".join(parts[:2]), parts[0]) if m in offered), "")

    page = read_page((root / "docs" / path).read_text("utf-8"), path)
    shown = Appearances(title=page.title)
    for listing, section in listed_sections(page, root):
        _, *within = listing.path.removesuffix(".py").split("/")
        module = home(".".join(within))
        if listing.language == "py" and module:
            names = [n for n in _names_in(section) if n in offered[module]]
            names = [f"{module}.{name}" for name in names]
            shown.listings.append((module, [*names, ""][0]))
            above = ["", *(h.anchor for h in page.headings if h.line < listing.line)]
            for name in names:
                shown.listed.setdefault(name, above[-1])
    init = (root / "src" / PACKAGES[0] / "__init__.py").read_text("utf-8")
    gathered = {name: module for module, name in _imported(init)}
    for module, name in _imported("\n".join(block.code for block in page.blocks)):
        module = home(gathered.get(name, "") if module == PACKAGES[0] else module)
        # The library hands on names of the checker.
        module = module if name in offered.get(module, []) else PACKAGES[-1]
        if name in offered.get(module, []):
            shown.used.add(f"{module}.{name}")
    return shown


def _imported(code: str) -> Iterator[tuple[str, str]]:
    """Return the module and the name of each import from our packages."""
    for module, names in _IMPORT.findall(code):
        yield from ((module, name) for name in re.findall(r"\w+", names))


def _names_in(section: Section) -> Iterator[str]:
    """Return the top-level names of a source file of which a section shows lines."""
    for node in _statements(section.file, section.file.stat().st_mtime_ns):
        if node.lineno <= section.last and (node.end_lineno or 0) >= section.first:
            match node:
                case (
                    ast.FunctionDef(name)
                    | ast.ClassDef(name)
                    | ast.Assign(targets=[ast.Name(name)])
                    | ast.AnnAssign(target=ast.Name(name))
                ):
                    yield name
                case _:
                    pass


# A file has many sections, and may change while the book is served.
@lru_cache(maxsize=256)
def _statements(file: Path, changed: int) -> list[ast.stmt]:
    return ast.parse(file.read_text("utf-8")).body
