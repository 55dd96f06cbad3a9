"""Check every shape in the library's signatures whenever tests run it.

jaxtyping wraps each function and dataclass that names a shape. Others run unwrapped,
such as microgpt, whose scalars one page calls a million times.
In each test only the first calls of a function are checked: a test that writes text
makes thousands, and checking them all took half of its time.
"""

import ast
import functools
import pkgutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args
from unittest.mock import patch

import beartype
from jaxtyping import AbstractArray, jaxtyped

_CHECKED_CALLS = 3  # of each function in each test
_calls: dict[Callable[..., object], int] = {}
_unchecked: dict[str, Any] = {}


def check_shapes(tree: ast.Module, source: str, _file: str) -> dict[str, Any]:
    """Have the functions and dataclasses of a module check the shapes that they name.

    It is a change for ``change_imports``.
    """
    if "from jaxtyping import" not in source:
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            check = ast.copy_location(ast.Name("__checked__", ast.Load()), node)
            # Decorators are applied from the last to the first: a function is checked
            # inside of the others, and a class as @dataclass has made it.
            decorators = node.decorator_list
            place = 0 if isinstance(node, ast.ClassDef) else len(decorators)
            decorators.insert(place, check)
    return {"__checked__": _checked}


def _checked(named: Any) -> Any:
    """Return a function or class that checks its shapes, if it can name any."""
    if not any(map(_can_be_shape, named.__annotations__.values())):
        return named
    # At its first use it imports JAX, if installed, to shorten JAX's tracebacks.
    with patch.dict(sys.modules, jax=None):
        return jaxtyped(typechecker=check_first_calls)(named)


def _can_be_shape(hint: object) -> bool:
    """Return whether a hint is a shape, or has one in it; a text can be anything."""
    is_shape = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return is_shape or isinstance(hint, str) or any(map(_can_be_shape, get_args(hint)))


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
