"""Modules as their files describe them: where they are, and how to make one.

Only the classes, functions and constants that a file names are taken from a checkout
and run.
"""

import __future__

import ast
import copy
import json
import math
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CORPUS", "Bug", "Module", "checkout", "make", "read", "source", "take"]

CORPUS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug in a module, as a change of its text.

    Args:
        bug: A short name of the mistake.
        kind: What it concerns: ``mask``, ``scale``, ``heads`` and the like.
        names: The exhibits that name it rightly.
        file: The file that it is in.
        edits: For each change, ``line:column-line:column`` in the correct file, and
            what stands there instead. Lines count from 1 and columns from 0.
    """

    bug: str
    kind: str
    names: tuple[str, ...]
    file: str
    edits: tuple[tuple[str, str], ...]

    def put_into(self, text: str) -> str:
        """Return the text of the file with the bug."""
        lines = [0, *(each.end() for each in re.finditer("\n", text))]
        for place, new in reversed(self.edits):
            one, other, last, end = map(int, re.split("[:-]", place))
            rest = text[lines[last - 1] + end :]
            text = text[: lines[one - 1] + other] + new + rest
        return text


@dataclass(frozen=True, kw_only=True)
class Module:
    """An attention of a public project.

    Args:
        name: ``owner/name``, with a word after a colon if a set has more of a project.
        repository: ``owner/name``.
        commit: The whole hash; or ``name==version`` for an installed package, whose
            files are then relative to the folder of installed packages.
        files: For each file, the classes, functions and constants to take, in order.
        hashes: For each file, the beginning of the SHA-256 of its text; of a notebook,
            of the cells that are valid Python.
        make: An expression that makes the layer.
        names: Statements to run before the parts, in place of configurations, constants
            and imports.
        call: The argument ``call`` of ``check_attention``, an expression.
        like: Its argument ``like``, where ``layer`` is the layer.
        pieces: Its argument ``pieces``.
        needs: Repositories to import from while the parts are loaded.
        notes: What is special about it.
        d_model: The width of its features.
        bugs: Bugs to put into it.
    """

    name: str
    repository: str
    commit: str
    files: dict[str, list[str]] = field(hash=False)
    hashes: dict[str, str] = field(hash=False)
    make: str
    names: str = ""
    call: str = ""
    like: str = ""
    pieces: str = ""
    needs: Sequence[str] = ()
    notes: str = ""
    d_model: int = 20
    bugs: tuple[Bug, ...] = ()


def read(file: Path) -> Module:
    """Read the file of a module."""
    said = tomllib.loads(file.read_text("utf-8"))
    known = {key: value for key, value in said.items() if not key.startswith("old_")}
    for each in known.get("bugs", ()):
        each["names"] = tuple(each["names"])
        each["edits"] = tuple(map(tuple, each["edits"]))
    bugs = tuple(Bug(**each) for each in known.pop("bugs", ()))
    name = file.stem.replace("+", "/", 1).replace("+", ":")
    return Module(name=name, bugs=bugs, **known)


def checkout(module: Module, folder: Path) -> Path:
    """Return the folder with the files of a module."""
    package, installed, _ = module.commit.partition("==")
    if installed:
        return Path(str(distribution(package).locate_file("")))
    return folder / module.repository.replace("/", "+")


def source(module: Module, folder: Path, file: str, bug: Bug | None = None) -> str:
    """Return the text of a file, with or without a bug.

    Raises:
        ValueError: If it is not the file of the module's commit.
    """
    text = _python(checkout(module, folder) / file)
    if sha256(text.encode()).hexdigest()[:16] != module.hashes[file]:
        raise ValueError(f"{module.name}: {file} is not that of {module.commit}")
    return bug.put_into(text) if bug is not None and bug.file == file else text


def _python(file: Path) -> str:
    """Return the code in a file; from a notebook, the cells that are valid Python."""
    text = file.read_text("utf-8-sig")
    if file.suffix != ".ipynb":
        return text
    valid: list[str] = []
    for cell in json.loads(text)["cells"]:
        code = re.sub(r"(?m)^\s*[%!].*$", "", "".join(cell["source"]))
        with suppress(SyntaxError):
            ast.parse(code)
            valid += [code] if cell["cell_type"] == "code" else []
    return "\n".join(valid)


def take(
    module: Module, folder: Path, bug: Bug | None = None
) -> Iterator[tuple[str, ast.Module]]:
    """Yield each file of a module, and the named parts of it.

    Raises:
        ValueError: If a part is not in its file.
    """
    for file, parts in module.files.items():
        tree = ast.parse(source(module, folder, file, bug))
        # In an if or try at the top level, too.
        inner = [
            getattr(x, "body", []) for x in tree.body if type(x) in (ast.If, ast.Try)
        ]
        statements = chain(tree.body, *inner)
        found = {name: each for each in statements for name in _names(each)}
        if missing := [part for part in parts if part not in found]:
            raise ValueError(f"{file} has no {', '.join(missing)}")
        tree.body = [found[part] for part in parts]
        yield file, tree


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [each.id for each in targets if isinstance(each, ast.Name)]


def make(
    module: Module, folder: Path, bug: Bug | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the layer of a module, and how to call it and what it should compute.

    With a bug it has the weights that it has without. What it should compute comes from
    the correct source, as ``like`` may use functions that the bug changes.
    """
    layer, names = _made(module, folder, bug)
    right = names
    if bug is not None:
        correct, right = _made(module, folder)
        weights = dict(correct.named_parameters())
        with torch.no_grad():
            for name, each in layer.named_parameters():
                each.copy_(weights[name])
    settings: dict[str, Any] = {}
    for key, scope in (("call", names), ("pieces", names), ("like", right)):
        if text := getattr(module, key):
            checks = vars(import_module("attention_check"))
            settings[key] = eval(text, {**checks, **scope, "layer": layer})
    return layer, settings


def _made(
    module: Module, folder: Path, bug: Bug | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the layer of a module, and the namespace in which it was made."""
    names: dict[str, Any] = {each: getattr(typing, each) for each in typing.__all__}
    names |= {"torch": torch, "nn": nn, "F": F, "Tensor": Tensor, "math": math}
    names |= {"copy": copy, "np": np, "dataclass": dataclass, "partial": partial}
    names |= {"Callable": Callable, "SimpleNamespace": SimpleNamespace}
    names |= {"__name__": "builtins"}
    needed = [folder / each.replace("/", "+") for each in module.needs]
    paths = [str(each / part) for each in needed for part in ("", "src")]
    with patch.object(sys, "path", [*paths, *sys.path]):
        exec(module.names, names)
        for file, tree in take(module, folder, bug):
            # Do not evaluate annotations, which may name parts that were not taken.
            lazy = __future__.annotations.compiler_flag
            exec(compile(tree, f"{module.name}/{file}", "exec", lazy, True), names)
        torch.manual_seed(0)
        return eval(module.make, names), names
