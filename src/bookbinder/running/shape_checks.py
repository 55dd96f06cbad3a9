"""Check every shape in the library's signatures whenever tests run it.

jaxtyping wraps each function of the modules with shapes in their signatures. Other
modules run unwrapped, such as microgpt, whose scalars one page calls a million times.
In each test only the first calls of a function are checked: a test that writes text
makes thousands, and checking them all took half of its time.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookbinder.places import PACKAGES

__all__ = ["check_shapes", "forget_calls", "modules_with_shapes"]

_SOURCE = Path(__file__).resolve().parents[2]
_CHECKER = "beartype.beartype"
_CHECKED_CALLS = 10  # of each function in each test
_calls: dict[Callable[..., Any], int] = {}


def check_shapes() -> None:
    """Check shapes in all modules of the library that are imported from now on."""
    # Modules imported by a module that jaxtyping has changed get another cache file;
    # beartype is large, so import it before.
    import beartype
    import jaxtyping
    from jaxtyping import install_import_hook, jaxtyped

    del beartype
    with pytest.MonkeyPatch.context() as context:
        # At its first use it imports JAX, if installed, to shorten JAX's tracebacks.
        context.setitem(sys.modules, "jax", None)
        jaxtyped(typechecker=None)(check_shapes)
    # The hook decorates with what it finds under this name.
    vars(jaxtyping)["jaxtyped"] = functools.partial(_checking_first_calls, jaxtyped)
    install_import_hook(modules_with_shapes(), _CHECKER)


def forget_calls() -> None:
    """Have the next calls of every function checked, as at the start of a test."""
    _calls.clear()


def _checking_first_calls(
    jaxtyped: Callable[..., Any], *, typechecker: Any
) -> Callable[[Any], Any]:
    """Decorate as ``jaxtyped`` does, but check only a function's first calls."""
    from jaxtyping import config

    def decorate(function: Any) -> Any:
        check = jaxtyped(typechecker=typechecker)
        if isinstance(function, type):
            return check(function)
        # To make a check takes milliseconds, and most functions of the library are not
        # called in a run of a few tests.
        checked = functools.cache(lambda: check(function))

        @functools.wraps(function)
        def first_calls_checked(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if config.jaxtyping_disable:
                return function(*args, **kwargs)
            before = _calls.get(function, 0)
            if before == _CHECKED_CALLS:
                return function(*args, **kwargs)
            _calls[function] = before + 1
            return checked()(*args, **kwargs)

        return first_calls_checked

    return decorate


def modules_with_shapes() -> list[str]:
    """Return the names of the modules of the library that import from jaxtyping."""
    files = [file for name in PACKAGES for file in (_SOURCE / name).rglob("*.py")]
    return sorted(
        ".".join(file.relative_to(_SOURCE).with_suffix("").parts)
        for file in files
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    )
