"""The library as a reader of source sees it: what each module defines and imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "PACKAGE",
    "Import",
    "Library",
    "Module",
    "StandaloneError",
    "bound_names",
]

PACKAGE = "tested_transformer"


class StandaloneError(ValueError):
    """A listing that cannot be taken out of the library; the message says why."""


@dataclass(frozen=True)
class Import:
    """A name that a module takes from elsewhere; ``name`` is None for a module."""

    module: str
    name: str | None
    as_name: str

    def line(self) -> str:
        """Write it."""
        what = self.module if self.name is None else self.name
        renamed = "" if what == self.as_name else f" as {self.as_name}"
        if self.name is None:
            return f"import {self.module}{renamed}"
        return f"from {self.module} import {self.name}{renamed}"


@dataclass
class Module:
    """A module of the library: what it defines, and what it imports.

    Listings share most of what they need: what a definition uses, and how it reads
    where nothing of it is renamed, is kept for the next.
    """

    name: str
    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict[str, ast.stmt])
    imports: dict[str, Import] = field(default_factory=dict[str, Import])
    uses: dict[ast.stmt, list[str]] = field(default_factory=dict[ast.stmt, list[str]])
    texts: dict[ast.stmt, str] = field(default_factory=dict[ast.stmt, str])


class Library:
    """All modules of the library, read when they are first asked for.

    Args:
        source: The folder that the package lies in.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """Give a module by its dotted name."""
        if name not in self.modules:
            path = self.source / name.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self.modules[name] = _read(name, path.read_text("utf-8"))
        return self.modules[name]

    def find(self, module: str, name: str) -> tuple[str, ast.stmt] | Import | None:
        """Follow a name to where it is defined, or to a package from outside."""
        there = self.module(module)
        if name in there.definitions:
            return module, there.definitions[name]
        imported = there.imports.get(name)
        if imported is None:
            return None
        if imported.module.partition(".")[0] != PACKAGE:
            return imported
        if imported.name is None or imported.as_name != imported.name:
            raise StandaloneError(f"{module} imports {name} under another name")
        return self.find(imported.module, imported.name)


def _read(name: str, source: str) -> Module:
    module = Module(name, source.splitlines())
    for node in ast.parse(source).body:
        for taken in _imports(node):
            module.imports[taken.as_name] = taken
        for bound in bound_names(node):
            module.definitions.setdefault(bound, node)
    return module


def _imports(node: ast.stmt) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname is None and "." in alias.name:
                yield Import(alias.name, None, alias.name.partition(".")[0])
            else:
                yield Import(alias.name, None, alias.asname or alias.name)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield Import(node.module or "", alias.name, alias.asname or alias.name)


def bound_names(node: ast.stmt) -> Iterator[str]:
    """Give the names that a statement of a module defines."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(name)):
            yield name
        case ast.Try(body=body) | ast.If(body=body):
            for inner in body:
                yield from bound_names(inner)
                yield from (taken.as_name for taken in _imports(inner))
        case _:
            pass
