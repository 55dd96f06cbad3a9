"""Attention modules of public projects: where they are, how to make and call them.

Each project is a checkout of its repository, in a folder with its name, with ``+`` for
``/``. Only the classes, functions and constants that a ``Module`` names are taken from
its files and run.
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
"""The parts that are taken from each file."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """Where an attention is, how to make it, and how its project calls it.

    Args:
        repository: ``owner/name``.
        commit: The whole hash; or ``name==version`` for an installed package, whose
            files are then relative to the folder of installed packages.
        files: For each file, the classes, functions and constants to take, in order.
            The last one of the last file is the layer.
        make: An expression that makes the layer.
        names: Statements to run before the parts, in place of configurations, constants
            and imports.
        adapter: The body of ``def call(layer, x)``, at most two lines. Only for a layer
            that needs more than features and a mask with a usual name.
        given: The arguments that its author would have to pass to ``check_attention``.
        mask: ``causal`` or ``bidirectional`` if it needs no mask, or ``argument``.
        needs: Repositories to import from while the parts are loaded.
        notes: What is special about it.
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
        """The arguments in ``given``, by name."""
        return eval(f"dict({self.given})")


def checkout(module: Module, folder: Path) -> Path:
    """Return the folder with the files of a module."""
    package, installed, _ = module.commit.partition("==")
    if installed:
        return Path(str(distribution(package).locate_file("")))
    return folder / module.repository.replace("/", "+")


def take(module: Module, folder: Path) -> Trees:
    """Return the named parts of the files of a module.

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
    """Return the code in a file; from a notebook, the cells that are valid Python."""
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
    """Yield the statements at the top level, and in an ``if`` or ``try`` there."""
    for each in tree.body:
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from each.body


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [each.id for each in targets if isinstance(each, ast.Name)]


def make(
    module: Module, folder: Path, trees: Trees | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the layer of a module, and the namespace in which it was made.

    Args:
        module: The module.
        folder: The folder with the checkouts.
        trees: Its parts, if they were changed.
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
            # Do not evaluate annotations, which may name parts that were not taken.
            lazy = __future__.annotations.compiler_flag
            code = compile(tree, f"{module.repository}/{file}", "exec", lazy, True)
            exec(code, names)
        torch.manual_seed(0)
        layer = eval(module.make, names)
    return layer, names


def call_of(
    module: Module, layer: nn.Module, names: dict[str, Any]
) -> Callable[..., Any]:
    """Return a layer as the checks get it: itself, or its adapter."""
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
    """Make packages in checkouts importable."""
    path = [*sys.path]
    sys.path[:0] = [str(each / part) for each in folders for part in ("", "src")]
    try:
        yield
    finally:
        sys.path[:] = path
