"""What a block may not do to the blocks after it: leave, or leave something changed.

A block that ended the process would end the test run with it, and look as if it had
passed. A function or class that a block replaces in a module stays replaced for every
block after it: who patches has to put back.
"""

import builtins
import math
import os
import random
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import NoReturn

__all__ = ["LeftBehindError", "nothing_left_behind", "staying"]

_WAYS_OUT = ("_exit", "abort", "execv", "execve", "fork", "forkpty")
_WATCHED = ("torch.nn", "torch.optim", "tested_transformer")
_KINDS = (FunctionType, BuiltinFunctionType, type, property, staticmethod, classmethod)

Owner = ModuleType | type


class LeftBehindError(Exception):
    """A block has replaced something that is not its own."""


@contextmanager
def staying() -> Generator[None]:
    """Refuse what would end or double the process."""

    def leave(*_: object) -> NoReturn:
        raise RuntimeError("a block may not leave the run")

    before = {name: getattr(os, name) for name in _WAYS_OUT if hasattr(os, name)}
    for name in before:
        setattr(os, name, leave)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(os, name, function)


@contextmanager
def nothing_left_behind() -> Generator[None]:
    """Put back what a block has replaced in modules and classes, and refuse it.

    Raises:
        LeftBehindError: If there is anything; the message names it.
    """
    before = [(owner, dict(vars(owner))) for owner in _owners()]
    failed = True
    try:
        yield
        failed = False
    finally:
        changed: list[str] = []
        for owner, held in before:
            now = vars(owner)
            for name, value in held.items():
                if now.get(name) is value or not isinstance(value, _KINDS):
                    continue
                # PyTorch itself wraps the step of an optimizer's class, and keeps the
                # kind of storage of the default dtype.
                if getattr(now.get(name), "hooked", False) or name == "Storage":
                    continue
                if not _is_wrapped_by_torch(name, now.get(name)):
                    changed.append(f"{_called(owner)}.{name}")
                    setattr(owner, name, value)
    if changed and not failed:
        raise LeftBehindError(
            f"this leaves {', '.join(changed)} replaced for every block after it: put "
            "back what you patch"
        )


def _is_wrapped_by_torch(name: str, value: object) -> bool:
    """Ask whether a function stands there that PyTorch has put round its own.

    Its compiler does so to optimizers and modules when it is first used.
    """
    import torch

    home = os.path.dirname(torch.__file__)
    file = getattr(getattr(value, "__code__", None), "co_filename", "")
    same = getattr(value, "__name__", "") == name
    return file.startswith(home) and (same or name in ("__init__", "__setstate__"))


def _owners() -> Iterator[Owner]:
    """Give the modules that blocks work with, and the classes that they define."""
    import torch

    yield torch.Tensor
    yield from (builtins, math, os, random, time, torch)
    loaded: dict[str, object] = {**sys.modules}  # not all of them need be modules
    for name, module in loaded.items():
        if name.startswith(_WATCHED) and isinstance(module, ModuleType):
            yield module
            yield from _classes(module)


@cache
def _classes(module: ModuleType) -> list[type]:
    """Give the classes of a module; found once, when a block first meets it."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _called(owner: Owner) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__qualname__}"
