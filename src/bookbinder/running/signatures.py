"""Check every shape in the library's signatures whenever tests run it.

jaxtyping wraps each function of the modules with shapes in their signatures. Other
modules run unwrapped, such as microgpt, whose scalars one page calls a million times.
In each test only the first calls of a function are checked: a test that writes text
makes thousands, and checking them all took half of its time.
"""

import functools
import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import beartype
from jaxtyping import install_import_hook, jaxtyped

from bookbinder.places import PACKAGES

_SOURCE = Path(__file__).resolve().parents[2]
_CHECKED_CALLS = 3  # of each function in each test
_calls: dict[Callable[..., object], int] = {}
_unchecked: dict[str, Any] = {}


def check_shapes() -> None:
    """Check shapes in all modules of the library that are imported from now on."""
    # At its first use it imports JAX, if installed, to shorten JAX's tracebacks.
    with patch.dict(sys.modules, jax=None):
        jaxtyped(typechecker=None)(check_shapes)
    install_import_hook(
        modules_with_shapes(), f"{__name__}.{check_first_calls.__name__}"
    )


def check_first_calls(function: Callable[..., object]) -> Callable[..., object]:
    """Check the types of a function's first calls, as a type checker of jaxtyping.

    It gets a function that only takes the arguments, or returns the result, of another.
    """
    # To make a check takes milliseconds, and most functions of the library are not
    # called in a run of a few tests.
    checked = functools.cache(lambda: beartype.beartype(function))

    @functools.wraps(function)
    def first_calls_checked(*args: object, **kwargs: object) -> None:
        __tracebackhide__ = True
        before = _calls.get(function, 0)
        if before < _CHECKED_CALLS:
            _calls[function] = before + 1
            checked()(*args, **kwargs)
        if before + 1 == _CHECKED_CALLS:
            # As by @no_type_check. A function in another has no path.
            with suppress(AttributeError, ValueError):
                path = f"{function.__module__}:{function.__qualname__}"
                known: Any = pkgutil.resolve_name(path)
                known = getattr(known, "fget", known)
                known.__no_type_check__ = True
                _unchecked[path] = known

    return first_calls_checked


def forget_calls() -> None:
    """Have the next calls of every function checked, as at the start of a test."""
    _calls.clear()
    for function in _unchecked.values():
        function.__no_type_check__ = False
    _unchecked.clear()


def modules_with_shapes() -> list[str]:
    """Return the names of the modules of the library that import from jaxtyping."""
    files = [file for name in PACKAGES for file in (_SOURCE / name).rglob("*.py")]
    return sorted(
        ".".join(file.relative_to(_SOURCE).with_suffix("").parts)
        for file in files
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    )
