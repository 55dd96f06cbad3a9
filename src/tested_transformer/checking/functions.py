"""Turn a function that uses modules into a module, to copy, move and train it.

``lambda x: layer(x, mask)[0]`` is the shortest adapter for a layer with an unusual
call. The layer is found among the names that the function uses, and replaced by a copy.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

__all__ = ["FunctionModule", "with_its_modules"]


def with_its_modules(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a module if it uses modules, or else unchanged."""
    if isinstance(attention, (types.FunctionType, types.MethodType, functools.partial)):
        module = FunctionModule(attention)
        if len(module.held):
            return module
    return attention


class FunctionModule(nn.Module):
    """A module around a function, with the modules that it uses as children.

    Args:
        function: A function that uses modules as closure or global variables, a method
            of a module, or ``functools.partial`` of a module.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        found = _names_of(function).items()
        modules = {name: each for name, each in found if isinstance(each, nn.Module)}
        self.held = nn.ModuleDict(modules)
        # Tensors, such as tables of angles, help to recognize what the function does.
        self.tensors = {name: each for name, each in found if isinstance(each, Tensor)}

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the function with this module's children in place of its own modules."""
        return _with_names(self.function, {**self.held})(*arguments, **named)


def _names_of(function: Any) -> dict[str, Any]:
    """Return the closure and global variables that a function uses, by name."""
    if isinstance(function, functools.partial):
        return {"function": function.func}
    if isinstance(function, types.MethodType):
        return {"instance": function.__self__}
    used = set(function.__code__.co_names)
    names = {
        name: value for name, value in function.__globals__.items() if name in used
    }
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return names | {name: cell.cell_contents for name, cell in cells}


def _with_names(function: Any, modules: dict[str, nn.Module]) -> Callable[..., Any]:
    """Return a copy of a function with other modules under the same names."""
    if isinstance(function, functools.partial):
        instead = modules["function"]
        return functools.partial(instead, *function.args, **function.keywords)
    if isinstance(function, types.MethodType):
        return types.MethodType(function.__func__, modules["instance"])
    cells = tuple(
        types.CellType(modules[name]) if name in modules else cell
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        )
    )
    copied = types.FunctionType(
        function.__code__,
        function.__globals__ | modules,
        function.__name__,
        function.__defaults__,
        cells,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied
