"""A file for each listing, with what it lists and all that it needs of this library.

It runs where this package is not: the definitions that the section lies in, those that
they use, and so on, in the order of the modules they come from; the imports of other
packages at the top. Shapes in signatures, which want jaxtyping, become plain tensors.
The copy button of a listing hands its file out.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from bookbinder.listings import Section, find_section
from bookbinder.page import Listing
from bookbinder.publishing.book import Book
from bookbinder.writing import write_whole

__all__ = [
    "Library",
    "StandaloneError",
    "file_of",
    "standalone",
    "write_standalone_files",
]

_PACKAGE = "tested_transformer"
_SHAPE = re.compile(r'\b(?:Bool|Float|Int|Integer)\[([\w.]+), "[^"]*"\]')
_MARK = re.compile(r"\s*# --8<-- ")
_NOTICE = (
    "# {path}\n"
    "# Copyright (c) 2026 The Tested Transformer contributors. MIT License: free to\n"
    "# use, change and share, as long as this notice stays.\n\n"
)


class StandaloneError(ValueError):
    """A listing that cannot be taken out of the library; the message says why."""


def write_standalone_files(site: Path, root: Path, book: Book) -> None:
    """Write the file of each listing of the book into the site."""
    library = Library(root / "src")
    for listing in {each for leaf in book.leaves for each in leaf.page.listings}:
        if name := file_of(listing):
            section = find_section(root, listing.path, listing.section)
            write_whole(site / name, standalone(section, library))


def file_of(listing: Listing) -> str:
    """Return where in the site a listing's file is, "" if it is of no module."""
    if listing.language != "py":
        return ""
    module = PurePosixPath(listing.path).relative_to("src")
    return f"listings/{module.with_stem(f'{module.stem}-{listing.section}')}"


@dataclass(frozen=True)
class _Import:
    """A name that a module takes from elsewhere; ``name`` is "" for a module."""

    module: str
    name: str
    words: str

    @property
    def ours(self) -> bool:
        return self.module.partition(".")[0] == _PACKAGE


@dataclass
class _Module:
    """A module of the library: what it defines, and what it imports."""

    name: str
    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict[str, ast.stmt])
    imports: dict[str, _Import] = field(default_factory=dict[str, _Import])


class Library:
    """All modules of the library below a folder, read when they are asked for."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.modules: dict[str, _Module] = {}

    def module(self, name: str) -> _Module:
        """Return a module by its dotted name."""
        if name not in self.modules:
            place = self.source.joinpath(*name.split("."))
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            source = _SHAPE.sub(r"\1", file.read_text("utf-8"))
            module = self.modules[name] = _Module(name, source.splitlines())
            for node in ast.parse(source).body:
                module.imports |= dict(_imports(node))
                for bound in _bound_names(node):
                    module.definitions.setdefault(bound, node)
        return self.modules[name]

    def find(self, module: _Module, name: str) -> "_Definition | _Import | None":
        """Follow a name to where it is defined, or to a package from outside."""
        if name in module.definitions:
            return _Definition(module.name, module.definitions[name])
        taken = module.imports.get(name)
        if taken is None or not taken.ours:
            return taken  # None is Python's own, or the function's.
        if taken.name != name:
            raise StandaloneError(f"{module.name} imports {name} under another name")
        return self.find(self.module(taken.module), name)

    def order(self, name: str, seen: dict[str, None]) -> list[str]:
        """Return a module and those it imports, each after those that it needs."""
        for taken in self.module(name).imports.values():
            if taken.ours and taken.module not in seen:
                self.order(taken.module, seen)
        seen[name] = None
        return list(seen)


@dataclass(frozen=True)
class _Definition:
    """A statement of a module that defines something."""

    module: str
    node: ast.stmt

    @property
    def first(self) -> int:
        decorators: list[ast.expr] = getattr(self.node, "decorator_list", [])
        return min(node.lineno for node in [self.node, *decorators])

    @property
    def last(self) -> int:
        return self.node.end_lineno or self.node.lineno


def _imports(node: ast.stmt) -> Iterator[tuple[str, _Import]]:
    """Return what a statement imports, by the name that it gives it."""
    for alias in getattr(node, "names", []):
        words = ast.unparse(alias)
        if isinstance(node, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            yield name, _Import(alias.name, "", words)
        elif isinstance(node, ast.ImportFrom):
            name = alias.asname or alias.name
            yield name, _Import(node.module or "", alias.name, words)


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Return the names that a statement of a module defines."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(name)):
            yield name
        case ast.Try(body=body) | ast.If(body=body):
            for inner in body:
                yield from _bound_names(inner)
                yield from dict(_imports(inner))
        case _:
            pass


@cache
def _names_in(node: ast.stmt) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def standalone(section: Section, library: Library) -> str:
    """Write what a section lists as one file that runs without this package.

    Raises:
        StandaloneError: If two modules import one name from two places, or one imports
            in a way that is not followed.
    """
    parts = section.file.relative_to(library.source).with_suffix("").parts
    home = ".".join(part for part in parts if part != "__init__")
    own = dict.fromkeys(library.module(home).definitions.values())
    waiting = [
        definition
        for definition in (_Definition(home, node) for node in own)
        if definition.first <= section.last and definition.last >= section.first
    ]
    if not waiting:
        raise StandaloneError(f"{section.path} defines nothing in this section")
    needed: dict[_Definition, None] = {}
    outside: dict[str, _Import] = {}
    while waiting:
        definition = waiting.pop(0)
        if definition in needed:
            continue
        needed[definition] = None
        module = library.module(definition.module)
        for name in dict.fromkeys(name.id for name in _names_in(definition.node)):
            found = library.find(module, name)
            if isinstance(found, _Definition):
                waiting.append(found)
            elif found and outside.setdefault(name, found) != found:
                raise StandaloneError(f"{name} is imported from two places")
    names = _renamed(library, home, needed, outside)
    order = library.order(home, {})
    placed = sorted(needed, key=lambda each: (order.index(each.module), each.first))
    texts = [_text(each, library.module(each.module), names) for each in placed]
    top = _NOTICE.format(path=section.path) + _header([*outside.values()])
    return "\n\n\n".join([top, *texts]) + "\n"


def _renamed(
    library: Library,
    home: str,
    needed: dict[_Definition, None],
    outside: dict[str, _Import],
) -> dict[tuple[str, str], str]:
    """Return new names, by module and name, for what two modules call the same."""
    owners = dict.fromkeys(outside, "")
    new: dict[tuple[str, str], str] = {}
    # What is listed keeps its names.
    for each in sorted(needed, key=lambda each: each.module != home):
        for name in _bound_names(each.node):
            if owners.setdefault(name, each.module) != each.module:
                last = each.module.rpartition(".")[2]
                new[each.module, name] = f"{name}_of_{last}"
    # Who imports a name that was changed calls it by its new one.
    for module in {each.module for each in needed}:
        for name in library.module(module).imports:
            found = library.find(library.module(module), name)
            if isinstance(found, _Definition) and (found.module, name) in new:
                new[module, name] = new[found.module, name]
    return new


def _text(
    definition: _Definition, module: _Module, names: dict[tuple[str, str], str]
) -> str:
    """Quote a definition, with the comments above it, renamed."""
    lines = [line.encode() for line in module.lines]
    node, first = definition.node, definition.first
    edits = [(each.lineno, each.col_offset, each.id) for each in _names_in(node)]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        start = len("class " if isinstance(node, ast.ClassDef) else "def ")
        edits.append((node.lineno, start, node.name))
    for number, start, name in sorted(edits, reverse=True):
        if new := names.get((module.name, name)):
            line = lines[number - 1]
            end = start + len(name.encode())
            lines[number - 1] = line[:start] + new.encode() + line[end:]
    while first > 1 and lines[first - 2].startswith(b"#"):
        first -= 1
    shown = (line.decode() for line in lines[first - 1 : definition.last])
    return "\n".join(line for line in shown if not _MARK.match(line)).strip("\n")


def _header(imports: list[_Import]) -> str:
    """Write the imports: first those of Python itself."""
    plain = {each.module: f"import {each.words}" for each in imports if not each.name}
    taken: dict[str, list[str]] = {}
    for each in imports:
        if each.name:
            taken.setdefault(each.module, []).append(each.words)
    groups: tuple[list[str], list[str]] = ([], [])
    for module, line in [
        *sorted(plain.items()),
        *((m, f"from {m} import {', '.join(sorted(taken[m]))}") for m in sorted(taken)),
    ]:
        groups[module.partition(".")[0] not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group)
