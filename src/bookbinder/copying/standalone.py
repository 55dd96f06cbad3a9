"""Make a listing stand alone: what it lists, with all that it needs of this library.

What comes out is one file that runs without this package: the definitions that the
section lies in, those that they use, and so on, in the order of the modules they come
from; the imports of other packages at the top. Shapes in signatures, which want
jaxtyping, become plain tensors.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bookbinder.copying.source import (
    PACKAGE,
    Import,
    Library,
    Module,
    StandaloneError,
    bound_names,
)
from bookbinder.listings import Section

__all__ = ["StandaloneError", "standalone"]

_SHAPES = "jaxtyping"
_MARK = re.compile(r"^\s*# --8<-- ")
_NOTICE = (
    "# {path}\n"
    "# Copyright (c) 2026 The Tested Transformer contributors. MIT License: free to\n"
    "# use, change and share, as long as this notice stays.\n"
)


@dataclass(frozen=True)
class _Piece:
    """One definition of one module."""

    module: str
    first: int
    last: int


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _is_shape(node: ast.AST, module: Module) -> bool:
    """Ask whether this is ``Float[Tensor, "B T"]`` or its like."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
        return False
    imported = module.imports.get(node.value.id)
    return imported is not None and imported.module == _SHAPES


def _used(node: ast.AST, module: Module) -> Iterator[str]:
    """Give the names that a definition uses, of a shape only the kind of tensor."""
    if _is_shape(node, module):
        assert isinstance(node, ast.Subscript)
        assert isinstance(node.slice, ast.Tuple)
        yield from _used(node.slice.elts[0], module)
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _used(child, module)


def _kept(piece: _Piece, module: Module, node: ast.stmt, names: dict[str, str]) -> str:
    if names:
        return _text(piece, module, node, names)
    if node not in module.texts:
        module.texts[node] = _text(piece, module, node, names)
    return module.texts[node]


def _text(piece: _Piece, module: Module, node: ast.stmt, names: dict[str, str]) -> str:
    """Quote a definition, with the comments above it, without shapes, renamed."""
    edits: list[tuple[int, int, int, str]] = []
    for each in ast.walk(node):
        if _is_shape(each, module):
            assert isinstance(each, ast.Subscript)
            assert isinstance(each.slice, ast.Tuple)
            if each.lineno != each.end_lineno:
                raise StandaloneError(f"{module.name}: a shape over two lines")
            kind = ast.unparse(each.slice.elts[0])
            edits.append((each.lineno, each.col_offset, each.end_col_offset or 0, kind))
        elif isinstance(each, ast.Name) and each.id in names:
            start = each.col_offset
            edits.append((each.lineno, start, start + len(each.id), names[each.id]))
        elif isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name in names:
            start = each.col_offset + len(
                "class " if isinstance(each, ast.ClassDef) else "def "
            )
            if start == len("def ") or each is node:
                end = start + len(each.name)
                edits.append((each.lineno, start, end, names[each.name]))
    lines = [line.encode() for line in module.lines[: piece.last]]
    for number, start, end, text in sorted(edits, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:start] + text.encode() + line[end:]
    first = piece.first
    while first > 1 and lines[first - 2].startswith(b"#"):
        first -= 1
    shown = (line.decode() for line in lines[first - 1 :])
    return "\n".join(line for line in shown if not _MARK.match(line)).strip("\n")


def standalone(section: Section, library: Library | None = None) -> str:
    """Write what a section lists as one file that runs without this package.

    Args:
        section: The listing's section of a source file.
        library: What was read of the library for other listings, if anything.

    Raises:
        StandaloneError: If two modules import one name from two places, or one imports
            in a way that is not followed.
    """
    source = next(p for p in section.file.parents if (p / PACKAGE).is_dir())
    library = library or Library(source)
    relative = section.file.relative_to(source).with_suffix("")
    home = ".".join(part for part in relative.parts if part != "__init__")
    module = library.module(home)
    roots = [
        node
        for node in dict.fromkeys(module.definitions.values())
        if _first(node) <= section.last and (node.end_lineno or 0) >= section.first
    ]
    if not roots:
        raise StandaloneError(f"{section.path} defines nothing in this section")
    pieces: dict[_Piece, ast.stmt] = {}
    outside: dict[str, Import] = {}
    for node in roots:
        _gather(library, home, node, pieces, outside)
    names = _names(library, pieces, outside)
    order = _in_order(library, home, {})
    placed = sorted(pieces, key=lambda piece: (order.index(piece.module), piece.first))
    texts = [
        _kept(piece, library.module(piece.module), pieces[piece], names[piece.module])
        for piece in placed
    ]
    top = _header(section.path, list(outside.values()))
    return top + "\n\n\n".join(["", *texts]) + "\n"


def _names(
    library: Library, pieces: dict[_Piece, ast.stmt], outside: dict[str, Import]
) -> dict[str, dict[str, str]]:
    """Give what has one name in two modules two names."""
    owners = dict.fromkeys(outside, "")
    names: dict[str, dict[str, str]] = {piece.module: {} for piece in pieces}
    home = next(iter(pieces)).module  # what is listed keeps its names
    for piece in sorted(pieces, key=lambda piece: piece.module != home):
        for name in bound_names(pieces[piece]):
            owner = owners.setdefault(name, piece.module)
            if owner == piece.module:
                continue
            names[piece.module][name] = f"{name}_of_{piece.module.rpartition('.')[2]}"
    # Who imports a name that was changed calls it by its new one.
    changed = {module: dict(own) for module, own in names.items()}
    for module, own in names.items():
        for taken in library.module(module).imports:
            match library.find(module, taken):
                case (str(where), _) if taken in changed.get(where, {}):
                    own[taken] = changed[where][taken]
                case _:
                    pass
    return names


def _gather(
    library: Library,
    name: str,
    node: ast.stmt,
    pieces: dict[_Piece, ast.stmt],
    outside: dict[str, Import],
) -> None:
    """Add a definition and all that it needs."""
    piece = _Piece(name, _first(node), node.end_lineno or node.lineno)
    if piece in pieces:
        return
    pieces[piece] = node
    module = library.module(name)
    if node not in module.uses:
        module.uses[node] = list(dict.fromkeys(_used(node, module)))
    for used in module.uses[node]:
        match library.find(name, used):
            case Import() as taken:
                if outside.setdefault(taken.as_name, taken) != taken:
                    raise StandaloneError(
                        f"{taken.as_name} is imported from two places"
                    )
            case (str(where), ast.stmt() as found):
                _gather(library, where, found, pieces, outside)
            case _:
                pass  # Python's own, or the function's


def _in_order(library: Library, name: str, seen: dict[str, None]) -> list[str]:
    """Give a module and those it imports, each after those that it needs itself."""
    for taken in library.module(name).imports.values():
        if taken.module.partition(".")[0] == PACKAGE and taken.module not in seen:
            _in_order(library, taken.module, seen)
    seen[name] = None
    return list(seen)


def _header(path: str, imports: list[Import]) -> str:
    """Write the notice, and the imports: first those of Python itself."""
    plain = sorted({each.line() for each in imports if each.name is None})
    gathered: dict[str, list[str]] = {}
    for each in imports:
        if each.name is not None:
            gathered.setdefault(each.module, []).append(
                each.line().partition(" import ")[2]
            )
    lines = [
        *plain,
        *(
            f"from {m} import {', '.join(sorted(n))}"
            for m, n in sorted(gathered.items())
        ),
    ]
    ours = [
        line
        for line in lines
        if line.split()[1].split(".")[0] in sys.stdlib_module_names
    ]
    theirs = [line for line in lines if line not in ours]
    groups = ["\n".join(group) for group in (ours, theirs) if group]
    return _NOTICE.format(path=path) + "\n".join(["", "\n\n".join(groups)])
