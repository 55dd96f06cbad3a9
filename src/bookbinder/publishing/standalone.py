"""Write a file for each listing, with everything that it needs of this library.

The file runs without this package. It contains the definitions of the section, those
that they use, and so on, in the order of their modules, with imports of other packages
at the top. Shapes in signatures, which need jaxtyping, become plain tensors. The copy
button of a listing copies its file.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bookbinder.listings import Section, find_section
from bookbinder.page import Listing
from bookbinder.places import PACKAGES
from bookbinder.publishing.book import Book
from bookbinder.writing import write_whole

__all__ = [
    "Library",
    "file_of",
    "standalone",
    "write_standalone_files",
]

_SHAPE = re.compile(r'\b(?:Bool|Float|Int|Integer|UInt8)\[([\w.]+), "[^"]*"\]')
_MARK = re.compile(r"\s*# --8<-- ")
_NOTICE = (
    "# {path}\n"
    "# Copyright (c) 2026 The Tested Transformer contributors. MIT License: free to\n"
    "# use, change and share, as long as this notice stays.\n\n"
)


def write_standalone_files(site: Path, root: Path, book: Book) -> None:
    """Write the file of each listing of the book into the site."""
    library = Library(root / "src")
    # In a fixed order, because new names depend on what was read before.
    for listing in (each for leaf in book.leaves for each in leaf.page.listings):
        if name := file_of(listing):
            section = find_section(root, listing.path, listing.section)
            write_whole(site / name, standalone(section, library))


def file_of(listing: Listing) -> str:
    """Return the path of a listing's file in the site, or "" if it has no module."""
    if listing.language != "py":
        return ""
    module = PurePosixPath(listing.path).relative_to("src")
    return f"listings/{module.with_stem(f'{module.stem}-{listing.section}')}"


@dataclass(frozen=True)
class _Import:
    """A name that a module imports; ``name`` is "" for a whole module."""

    module: str
    name: str
    words: str

    @property
    def ours(self) -> bool:
        return self.module.partition(".")[0] in PACKAGES


@dataclass(frozen=True)
class _Definition:
    """A statement that defines names: its lines, and its text with comments above."""

    module: str
    first: int
    last: int
    text: str
    names: tuple[str, ...]
    uses: tuple[str, ...]


class Library:
    """The modules of the library below a folder, each after those it imports."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._modules: dict[str, dict[str, _Definition | _Import]] = {}
        self._reading: set[str] = set()  # a package imports its own modules from itself

    def names(self, module: str) -> dict[str, _Definition | _Import]:
        """Return the definitions and imports of a module, by name."""
        if module not in self._modules:
            place = self.source.joinpath(*module.split("."))
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            source = _SHAPE.sub(r"\1", file.read_text("utf-8"))
            names: dict[str, _Definition | _Import] = {}
            for node in ast.parse(source).body:
                # Python itself reports a missing package, so keep only the try's body.
                for each in node.body if isinstance(node, ast.Try) else [node]:
                    if isinstance(each, ast.Import | ast.ImportFrom):
                        names |= _imports(each)
                    else:
                        found = _definition(each, module, source.splitlines())
                        names |= dict.fromkeys(found.names, found)
            self._reading.add(module)
            for taken in names.values():
                ours = isinstance(taken, _Import) and taken.ours
                if ours and taken.module not in self._reading:
                    self.names(taken.module)
            self._reading.remove(module)
            self._modules[module] = names
        return self._modules[module]

    def find(self, module: str, name: str) -> _Definition | _Import | None:
        """Follow a name to its definition, or to an external package."""
        found = self.names(module).get(name)
        if isinstance(found, _Import) and found.ours:
            if found.name != name:
                raise ValueError(f"{module} imports {name} under another name")
            return self.find(found.module, name)
        return found  # None means a builtin or a local name.

    def place(self, definition: _Definition) -> tuple[int, int]:
        """Return a sort key for the order in which Python would run definitions."""
        return [*self._modules].index(definition.module), definition.first


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, _Import]:
    """Return the imports of a statement, by the names that it binds."""
    found: dict[str, _Import] = {}
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module, name = node.module or "", alias.name
        else:
            module, name = alias.name, ""
        bound = alias.asname or name or module.partition(".")[0]
        found[bound] = _Import(module, name, ast.unparse(alias))
    return found


def _definition(node: ast.stmt, module: str, lines: list[str]) -> _Definition:
    first = _first_line(node)
    last = node.end_lineno or node.lineno
    above = first
    while above > 1 and lines[above - 2].startswith("#"):
        above -= 1
    # Methods that import from the package when called cannot be included.
    inner = node.body if isinstance(node, ast.ClassDef) else []
    left_out = [each for each in inner if _needs_package(each)]
    dropped = {
        number
        for each in left_out
        for number in range(_first_line(each), (each.end_lineno or each.lineno) + 2)
    }
    shown = [
        line
        for number, line in enumerate(lines[above - 1 : last], start=above)
        if number not in dropped and not _MARK.match(line)
    ]
    hidden = {each for method in left_out for each in ast.walk(method)}
    names = (each for each in ast.walk(node) if each not in hidden)
    used = [each.id for each in names if isinstance(each, ast.Name)]
    return _Definition(
        module,
        first,
        last,
        "\n".join(shown).strip("\n"),
        tuple(_bound_names(node)),
        tuple(dict.fromkeys(used)),
    )


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(each.lineno for each in [node, *decorators])


def _needs_package(node: ast.stmt) -> bool:
    """Return whether a method imports a module of the package when it is called."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(each, ast.ImportFrom)
        and (each.module or "").partition(".")[0] in PACKAGES
        for each in ast.walk(node)
    )


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Return the names that a statement of a module binds."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(name)):
            yield name
        case ast.If(body=body):
            for inner in body:
                yield from _bound_names(inner)
        case _:
            pass


def standalone(section: Section, library: Library) -> str:
    """Return a section as one file that runs without this package.

    Raises:
        ValueError: If two modules import one name from two places, or an import has a
            form that is not supported.
    """
    parts = section.file.relative_to(library.source).with_suffix("").parts
    home = ".".join(part for part in parts if part != "__init__")
    waiting = [
        found
        for found in library.names(home).values()
        if isinstance(found, _Definition)
        and found.first <= section.last
        and found.last >= section.first
    ]
    if not waiting:
        raise ValueError(f"{section.path} defines nothing in this section")
    needed: set[_Definition] = set()
    outside: dict[str, _Import] = {}
    while waiting:
        definition = waiting.pop()
        if definition in needed:
            continue
        needed.add(definition)
        for name in definition.uses:
            found = library.find(definition.module, name)
            if isinstance(found, _Definition):
                waiting.append(found)
            elif found and outside.setdefault(name, found) != found:
                raise ValueError(f"{name} is imported from two places")
    placed = sorted(needed, key=library.place)
    new = _new_names(placed, home, outside)
    top = _NOTICE.format(path=section.path) + _header([*outside.values()])
    return "\n\n\n".join([top, *(_text(each, library, new) for each in placed)]) + "\n"


def _new_names(
    placed: list[_Definition], home: str, outside: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Return new names, by module and name, for names that two modules share."""
    owners = dict.fromkeys(outside, "")
    new: dict[tuple[str, str], str] = {}
    # The listed section keeps its names.
    for each in sorted(placed, key=lambda each: each.module != home):
        for name in each.names:
            if owners.setdefault(name, each.module) != each.module:
                last = each.module.rpartition(".")[2]
                new[each.module, name] = f"{name}_of_{last}"
    return new


def _text(
    definition: _Definition, library: Library, new: dict[tuple[str, str], str]
) -> str:
    """Return the text of a definition, with new names where there are any."""
    text = definition.text
    for name in {*definition.names, *definition.uses}:
        found = library.find(definition.module, name)
        if isinstance(found, _Definition) and (found.module, name) in new:
            text = re.sub(rf"(?<![.\w]){name}\b", new[found.module, name], text)
    return text


def _header(imports: list[_Import]) -> str:
    """Return the imports, with the standard library first."""
    taken: dict[tuple[bool, bool, str], list[str]] = {}
    for each in imports:
        python = each.module.partition(".")[0] in sys.stdlib_module_names
        key = not python, bool(each.name), each.module
        taken.setdefault(key, []).append(each.words)
    groups: tuple[list[str], list[str]] = ([], [])
    for (other, names, module), words in sorted(taken.items()):
        start = f"from {module} import" if names else "import"
        groups[other].append(f"{start} {', '.join(sorted(set(words)))}")
    return "\n\n".join("\n".join(group) for group in groups if group)
