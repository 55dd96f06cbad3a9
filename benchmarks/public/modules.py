"""Attention modules of public projects: where one is, how to make it and to call it.

A project is a checkout of its repository, in a folder of its own under its name with
``+`` for ``/``. Only the classes, functions and constants that a ``Module`` names are
taken out of its files and run.
"""

import __future__

import ast
import copy
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Module", "Trees", "call_of", "checkout", "make", "take"]

Trees = dict[str, ast.Module]
"""For each file the parts that are taken out of it."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """Where an attention is, how to make one, and how its project calls it.

    Args:
        repository: ``owner/name``.
        commit: The whole hash; ``name==version`` for a package that is installed, whose
            files are then named from where packages are.
        files: For each file the classes, functions and constants to take, in their
            order; the last of the last file is the layer.
        make: An expression that makes the layer.
        names: Statements that run before the parts: what stands in for configurations,
            constants and imports.
        adapter: Only if the layer cannot be called with features alone, or with a mask
            of a usual name: the body of ``def call(layer, x)``, at most two lines.
        given: The arguments for ``check_attention`` that its author would have to give.
        mask: ``causal`` or ``bidirectional``, what it is by itself, or ``argument``.
        needs: Repositories to import from while the parts are loaded.
        notes: What is particular about it.
        d_model: The width of its features.
    """

    repository: str
    commit: str
    files: dict[str, tuple[str, ...]] = field(hash=False)
    make: str
    names: str = ""
    adapter: str = ""
    given: str = ""
    mask: str = ""
    needs: tuple[str, ...] = ()
    notes: str = ""
    d_model: int = 20

    @property
    def arguments(self) -> dict[str, Any]:
        """What ``given`` says."""
        return eval(f"dict({self.given})")


def checkout(module: Module, folder: Path) -> Path:
    """Return where the files of a module are."""
    package, installed, _ = module.commit.partition("==")
    if installed:
        return Path(str(distribution(package).locate_file("")))
    return folder / module.repository.replace("/", "+")


def take(module: Module, folder: Path) -> Trees:
    """Take the named parts out of the files of a module.

    Raises:
        ValueError: If a part is not in its file.
    """
    trees: Trees = {}
    for file, parts in module.files.items():
        tree = ast.parse(_source(checkout(module, folder) / file))
        found = {name: each for each in _statements(tree) for name in _names(each)}
        if missing := [part for part in parts if part not in found]:
            raise ValueError(f"{file} has no {', '.join(missing)}")
        tree.body = [found[part] for part in parts]
        trees[file] = tree
    return trees


def _source(file: Path) -> str:
    """Return the program in a file; of a notebook, the cells that are Python."""
    text = file.read_text("utf-8-sig")
    if file.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    code = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    plain = [re.sub(r"(?m)^\s*[%!].*$", "", each) for each in code]
    return "\n".join(each for each in plain if _is_python(each))


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield what stands at the top, and in an ``if`` or ``try`` there."""
    for each in tree.body:
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from each.body


def _names(statement: ast.stmt) -> list[str]:
    """Return what a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [each.id for each in targets if isinstance(each, ast.Name)]


def make(
    module: Module, folder: Path, trees: Trees | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Make the layer of a module, and return it with the names that it was made among.

    Args:
        module: Which.
        folder: Where the checkouts are.
        trees: Its parts, if they are not as they were taken.
    """
    names: dict[str, Any] = {each: getattr(typing, each) for each in typing.__all__}
    names |= {"torch": torch, "nn": nn, "F": F, "Tensor": Tensor, "math": math}
    names |= {"copy": copy, "np": np, "dataclass": dataclass, "partial": partial}
    names |= {"Callable": Callable, "SimpleNamespace": SimpleNamespace}
    names |= {"__name__": "builtins"}
    needed = [folder / each.replace("/", "+") for each in module.needs]
    with _importable(needed):
        exec(module.names, names)
        for file, tree in (trees or take(module, folder)).items():
            # Annotations are not evaluated: they name what is not taken.
            lazy = __future__.annotations.compiler_flag
            code = compile(tree, f"{module.repository}/{file}", "exec", lazy, True)
            exec(code, names)
        torch.manual_seed(0)
        layer = eval(module.make, names)
    return layer, names


def call_of(
    module: Module, layer: nn.Module, names: dict[str, Any]
) -> Callable[..., Any]:
    """Return a layer as it is handed to the checks: it, or its adapter."""
    if not module.adapter:
        return layer
    body = "".join(f"\n    {line}" for line in module.adapter.strip().splitlines())
    exec(f"def call(layer, x):{body}", names)
    call = names["call"]

    def attention(x: Tensor) -> Tensor:
        return call(layer, x)

    return attention


@contextmanager
def _importable(folders: Sequence[Path]) -> Iterator[None]:
    """Let packages be imported from checkouts."""
    path = [*sys.path]
    sys.path[:0] = [str(each / part) for each in folders for part in ("", "src")]
    try:
        yield
    finally:
        sys.path[:] = path
