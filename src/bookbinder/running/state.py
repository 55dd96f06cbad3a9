"""Give each block a fresh state, and refuse what would affect later blocks.

A function that a block replaces in a module would stay replaced for every later block,
so a block that patches must restore it.
"""

import builtins
import math
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

from bookbinder.places import PACKAGES

# Outputs are written with one seed and checked with another, so that a block without a
# seed of its own fails.
WRITTEN, CHECKED = 0, int(os.environ.get("BOOK_SEED", "1"))
# Tensors on pages are small, so more threads only add waiting on a busy machine.
THREADS = int(os.environ.get("BOOK_THREADS", "1"))

_WATCHED = ("torch.nn.functional", "torch.nn.modules", *PACKAGES)
_KINDS = (FunctionType, BuiltinFunctionType, type, property, staticmethod, classmethod)


class LeftBehindError(Exception):
    """A block has replaced something that is not its own."""


@contextmanager
def fresh_state(seed: int = CHECKED) -> Generator[Path]:
    """Set up the state of a newly started interpreter, in an empty folder.

    Everything that a block may change for the next one is reset before and restored
    after: seeds, print options, default dtype and device, threads, autograd, filters of
    warnings, the environment, the import path, the working folder. Anything that a
    block has replaced in a module is restored and reported. Shape checks are off, so
    that a block gets the same errors as a reader.

    Raises:
        LeftBehindError: If a block has replaced a function or a class.
    """
    import jaxtyping

    environment, path, here = dict(os.environ), [*sys.path], Path.cwd()
    checked = jaxtyping.config.jaxtyping_disable
    with tempfile.TemporaryDirectory() as folder:
        as_started(seed, THREADS)
        jaxtyping.config.update("jaxtyping_disable", True)
        os.chdir(folder)
        try:
            # Under pytest each test has its own filters of warnings already.
            with warnings.catch_warnings(), nothing_left_behind():
                yield Path(folder)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            jaxtyping.config.update("jaxtyping_disable", checked)
            as_started(seed, THREADS)


def as_started(seed: int, threads: int) -> None:
    """Set what a run may have changed in this process as a new interpreter has it.

    A notebook holds the source of this function before each run that starts anew, so it
    stands alone.
    """
    import random
    import sys

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    # Setting it again imports a compiler, four seconds.
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if matplotlib := sys.modules.get("matplotlib"):
        matplotlib.rc_file_defaults()


@contextmanager
def nothing_left_behind() -> Generator[None]:
    """Restore what a block has replaced in modules and classes, and raise an error.

    Raises:
        LeftBehindError: If there is anything; the message names it.
    """
    before = {
        (owner, name): value
        for owner in _owners()
        for name, value in vars(owner).items()
        if isinstance(value, _KINDS)
    }
    changed: list[str] = []
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            now = vars(owner).get(name)
            if now is not value and not _is_torchs_own(name, now):
                of = f"{owner.__module__}." if isinstance(owner, type) else ""
                changed.append(f"{of}{owner.__name__}.{name}")
                setattr(owner, name, value)
    if changed:
        raise LeftBehindError(
            f"this leaves {', '.join(changed)} replaced for every block after it: put "
            "back what you patch"
        )


def _is_torchs_own(name: str, value: object) -> bool:
    """Return whether PyTorch itself makes this change, as when it compiles."""
    module, same = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    if name == "Storage" or (same == name and module.startswith("torch")):
        return True
    if getattr(value, "hooked", False):  # the step of an optimizer, once one is made
        return True
    return module.startswith("torch._dynamo.")  # which patches Module.__init__ for good


def _owners() -> Iterator[ModuleType | type]:
    """Return the modules that blocks work with, and the classes that they define."""
    import torch

    yield from (builtins, math, os, random, time, torch, torch.Tensor)
    loaded: dict[str, object] = {**sys.modules}  # not all are modules
    for name, module in loaded.items():
        if name.startswith(_WATCHED) and isinstance(module, ModuleType):
            yield module
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == name:
                    yield value
