"""Make a file for each listing, with everything that it needs of this library.

The file runs without this package. It contains the definitions of the section and those
that they use, in the order in which Python would run them, below imports of other
packages. Shapes in signatures, which need jaxtyping, become plain tensors. The copy
button of a listing copies its file.

A run whose imports need little code, and PyTorch alone, has such a file, too, with a
button of its own.
"""

import ast
import dis
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bookbinder.listings import Section, find_section
from bookbinder.page import Listing
from bookbinder.places import PACKAGES
from bookbinder.publishing.book import Book, Entry

_SHAPE = re.compile(r'\b(?:Bool|Float|Int|Integer|Shaped|UInt8)\[([\w.]+), "[^"]*"\]')
# A copy with more lines of the library than these would bury its run.
_MOST_LINES = 150
_RUN = "run"  # the name of a run among the modules
_NOTICE = """\
# {path}
# Copyright (c) 2026 The Tested Transformer contributors. MIT License: free to
# use, change and share, as long as this notice stays.
"""


def standalone_files(root: Path, book: Book) -> dict[str, str]:
    """Return the files of all listings, and of runs that have one, by their paths."""
    library = Library(root / "src")
    files: dict[str, str] = {}
    for entry in book.entries:
        for listing in entry.page.listings:
            if name := file_of(listing):
                section = find_section(root, listing.path, listing.section)
                files[name] = standalone(section, library)
    for entry in book.entries:
        for number, run in enumerate(entry.page.runs(), start=1):
            code = "\n".join(block.code for block in run)
            path = f"{entry.page.path}, block {number}"
            if text := standalone_run(code, path, library):
                files[file_of_run(entry, number)] = text
    return files


def file_of_run(entry: Entry, number: int) -> str:
    """Return the path in the site of the file of a page's run, if it has one."""
    return f"runs/{entry.name}-{number}.py"


def file_of(listing: Listing) -> str:
    """Return the path of a listing's file in the site, or "" if it has no module."""
    if listing.language != "py":
        return ""
    module = PurePosixPath(listing.path).relative_to("src")
    return f"listings/{module.with_stem(f'{module.stem}-{listing.section}')}"


@dataclass(frozen=True)
class Definition:
    """A statement that binds names, with comments above; an import has no module."""

    module: str
    first: int
    last: int
    text: str
    names: tuple[str, ...]
    uses: tuple[str, ...] = ()


class Library:
    """The modules below a folder, each read after those that it imports."""

    def __init__(self, source: Path) -> None:
        self.source = source
        # The definition of each name of a module, or the module that it comes from.
        self._modules: dict[str, dict[str, Definition | str]] = {"": {}}

    def names(self, module: str) -> dict[str, Definition | str]:
        """Read a module of this project, and return what its names stand for."""
        if module in self._modules:
            return self._modules[module]
        place = self.source.joinpath(*module.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        return self.read(module, _SHAPE.sub(r"\1", file.read_text("utf-8")))

    def read(self, module: str, text: str) -> dict[str, Definition | str]:
        """Read the text of a module, and return what its names stand for."""
        # Entered first, because a package imports its own modules from itself.
        names = self._modules[module] = {}
        lines = text.splitlines()
        for node in ast.parse(text).body:
            # Python itself reports a missing package, so keep only the try's body. What
            # a package imports when it is first asked for stands in an if.
            inside = isinstance(node, ast.Try | ast.If)
            for statement in node.body if inside else [node]:
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    definition = _definition(statement, module, lines)
                    names |= dict.fromkeys(definition.names, definition)
                    continue
                for alias in statement.names:
                    source: str = getattr(statement, "module", "")
                    name = alias.asname or alias.name.partition(".")[0]
                    if source.partition(".")[0] in PACKAGES:
                        if alias.asname:
                            raise ValueError(f"{module} imports {name} by another name")
                        names[name] = source
                        self.names(source)
                    else:
                        start = f"from {source} import" if source else "import"
                        line = f"{start} {ast.unparse(alias)}"
                        names[name] = Definition("", 0, 0, line, (name,))
        self._modules[module] = self._modules.pop(module)
        return names

    def find(self, module: str, name: str) -> Definition | None:
        """Follow a name to its definition; one that is local or built in has none."""
        target = self.names(module).get(name)
        if target == module:  # a module, which its package imports from itself
            return None
        return self.find(target, name) if isinstance(target, str) else target

    def place(self, definition: Definition) -> tuple[int, int]:
        """Return a sort key for the order in which Python would run definitions."""
        return [*self._modules].index(definition.module), definition.first


def _definition(node: ast.stmt, module: str, lines: list[str]) -> Definition:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min(part.lineno for part in [node, *decorators])
    last = node.end_lineno or node.lineno
    above = first
    while above > 1 and lines[above - 2].startswith("#"):
        above -= 1
    text = [line for line in lines[above - 1 : last] if "# --8<-- [" not in line]
    uses = (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return Definition(
        module,
        first,
        last,
        "\n".join(text).strip("\n"),
        tuple(_bound([node])),
        tuple(dict.fromkeys(uses)),
    )


def _bound(body: list[ast.stmt]) -> dict[str, None]:
    """Return the names that some code binds outside functions, in order."""
    match body:
        case [ast.FunctionDef(name) | ast.ClassDef(name)]:  # as most of a library is
            return {name: None}
        case _:
            steps = dis.get_instructions(compile(ast.Module(body, []), "", "exec"))
            names = (step.argval for step in steps if step.opname == "STORE_NAME")
            return dict.fromkeys(names)


def standalone(section: Section, library: Library) -> str:
    """Return a section as one file that runs without this package.

    Raises:
        ValueError: If two modules import one name from two places, or an import has a
            form that is not supported.
    """
    parts = section.file.relative_to(library.source).with_suffix("").parts
    home = ".".join(part for part in parts if part != "__init__")
    waiting = [
        definition
        for definition in library.names(home).values()
        if isinstance(definition, Definition)
        and definition.first <= section.last
        and definition.last >= section.first
    ]
    if not waiting:
        raise ValueError(f"{section.path} defines nothing in this section")
    return _file(section.path, home, _needed(waiting, library), library)


def standalone_run(code: str, path: str, library: Library) -> str:
    """Return a run below what it imports of this package, or "".

    It is "" if the run imports nothing of it, or if the copy would need more than
    PyTorch, hold more of the library than readers look through, or bind a name twice.
    """
    # The material of the book, such as its models, is more than code.
    if "transformer_book" in code or not any(name in code for name in PACKAGES):
        return ""
    body, lines = ast.parse(code).body, code.splitlines()
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in reversed(imports):
        del lines[node.lineno - 1 : node.end_lineno]
    rest = "\n".join(lines).strip("\n")
    try:
        names = library.read(_RUN, "\n".join(map(ast.unparse, imports)))
        definitions = [library.find(_RUN, name) for name in names]
        needed = _needed([*filter(None, definitions)], library)
        bound = {name for definition in needed for name in definition.names}
        if (
            None in definitions  # a module of this package, not something in it
            or sum(d.last - d.first + 1 for d in needed) > _MOST_LINES
            or not bound.isdisjoint(_bound(ast.parse(rest).body))
        ):
            return ""
        text = f"{_file(path, _RUN, needed, library)}\n\n{rest}\n"
    except ValueError:  # a name from two places, or by another name
        return ""
    others = _packages(ast.parse(text)) - sys.stdlib_module_names
    return text if others <= {"torch"} else ""


def _packages(tree: ast.AST) -> set[str]:
    """Return the packages that some code imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return {name.partition(".")[0] for name in names}


def _needed(waiting: list[Definition], library: Library) -> set[Definition]:
    """Return some definitions, and all that they use."""
    needed: set[Definition] = set()
    while waiting:
        definition = waiting.pop()
        if definition not in needed:
            needed.add(definition)
            used = (library.find(definition.module, name) for name in definition.uses)
            waiting += filter(None, used)
    return needed


def _file(path: str, home: str, needed: set[Definition], library: Library) -> str:
    """Return definitions as a file; the module ``home`` keeps its names."""
    # If two modules share a name, imports and the listed module keep it.
    owners: dict[str, str] = {}
    new_names: dict[tuple[str, str], str] = {}
    placed = sorted(needed, key=library.place)
    first = sorted(placed, key=lambda d: [d.module != "", d.module != home])
    for definition in first:
        for name in definition.names:
            owner = definition.module or definition.text
            if owners.setdefault(name, owner) != owner:
                if not definition.module:
                    raise ValueError(f"{name} is imported from two places")
                end = definition.module.rpartition(".")[2]
                new_names[definition.module, name] = f"{name}_of_{end}"
    imports = _import_lines(d.text for d in placed if not d.module)
    texts = [_renamed(d, library, new_names) for d in placed if d.module]
    top = f"{_NOTICE.format(path=path)}\n{imports}"
    return "\n\n\n".join([top, *texts]) + "\n"


def _import_lines(imports: Iterable[str]) -> str:
    """Return imports with one line for each module, the standard library first."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for line in sorted(imports, key=lambda line: (line.startswith("from"), line)):
        start, _, name = line.rpartition("import ")
        names[start or line].append(name)
    groups: tuple[list[str], list[str]] = ([], [])
    for start, imported in names.items():
        third_party = start.split()[1].partition(".")[0] not in sys.stdlib_module_names
        end = f"import {', '.join(imported)}" if start.startswith("from") else ""
        groups[third_party].append(start + end)
    return "\n\n".join("\n".join(group) for group in groups if group)


def _renamed(
    definition: Definition, library: Library, new_names: dict[tuple[str, str], str]
) -> str:
    """Return the text of a definition, with new names where there are any."""
    text = definition.text
    for name in {*definition.names, *definition.uses}:
        target = library.find(definition.module, name)
        if target and (new := new_names.get((target.module, name))):
            text = re.sub(rf"(?<![.\w]){name}\b", new, text)
    return text
