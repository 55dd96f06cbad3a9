"""Note which arguments of an attention the checks gave more than one value."""

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.styles import Parameters, parameters_of
from tested_transformer.checking.subject import copied

__all__ = ["Watch", "checking", "watched"]

_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_checking: ContextVar[bool] = ContextVar("_checking", default=False)


@contextmanager
def checking() -> Generator[None]:
    """Let calls count: those that find out how to call an attention ask nothing."""
    before = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(before)


class Watch:
    """The arguments that the checks called an attention with, by name.

    Args:
        parameters: Those of its call.
        fixed: The names of those that its author gave a value.
    """

    def __init__(self, parameters: Parameters, fixed: Mapping[str, Any]) -> None:
        self._signature = inspect.Signature([*parameters.values()])
        self._names = {
            name: _STARS.get(each.kind, "") + name
            for name, each in parameters.items()
            if name not in fixed and not isinstance(each.default, nn.Module)
        }
        self._values: dict[str, set[object]] = {name: set() for name in self._names}
        self._tried: set[str] = set()

    @property
    def untried(self) -> tuple[str, ...]:
        """The arguments that had one value, such as their default, in every call.

        Zeros of any shape are one value, and so are the positions 0, 1, 2, and so on.
        """
        left = self._names.items()
        return tuple(shown for name, shown in left if name not in self._tried)

    def note(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note the arguments of a call that succeeded."""
        if not _checking.get():
            return
        try:
            call = self._signature.bind(*arguments, **named)
        except TypeError:  # a decorator may take others than it says
            return
        call.apply_defaults()
        for name in self._names.keys() - self._tried:
            value, seen = call.arguments[name], self._values[name]
            told = _told(value)
            if told is None and value is self._signature.parameters[name].default:
                told = ("its default",)
            seen.add(told)
            if len(seen) > 1 or told is None:
                self._tried.add(name)


def _told(value: object) -> tuple[object, ...] | None:
    """Return what tells a value from others, or ``None`` if it has too many parts."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value), value
    if isinstance(value, Mapping):
        value = (*value.items(),)
    if isinstance(value, (tuple, list)):
        parts = [*map(_told, value)]
        return None if None in parts else (tuple, *parts)
    if not isinstance(value, Tensor):
        return None
    value = value.detach()
    if value.dtype in (torch.int32, torch.int64) and value.ndim:
        places = torch.arange(value.shape[-1], device=value.device)
        if (value == places).all():
            return Tensor, "places"
    if not value.numel() or (value == value.flatten()[0]).all():
        return (Tensor, *value.flatten()[:1].tolist())
    return None


def watched(attention: Callable[..., Any]) -> tuple[Callable[..., Any], Watch | None]:
    """Return an attention that notes its arguments, and where it does.

    A scripted module takes no hooks, and what is not callable has no arguments.
    """
    if not callable(attention) or isinstance(attention, (type, torch.jit.ScriptModule)):
        return attention, None
    parameters = parameters_of(attention)
    partial = isinstance(attention, functools.partial)
    watch = Watch(parameters, attention.keywords if partial else {})
    held = with_its_modules(attention)
    if isinstance(held, nn.Module):
        module = copied(held)  # whose copies have the same hook

        def hook(
            module: nn.Module, given: tuple[Any, ...], named: Any, output: Any
        ) -> None:
            watch.note(given, named)

        # A copy of a compiled module loses its own hooks, and keeps those inside.
        inner = getattr(module, "_orig_mod", module)
        inner.register_forward_hook(torch.compiler.disable(hook), with_kwargs=True)
        return module, watch

    @functools.wraps(attention)
    def noted(*given: Any, **named: Any) -> Any:
        output = attention(*given, **named)
        watch.note(given, named)
        return output

    noted.__name__ = getattr(attention, "__name__", type(attention).__name__)
    return noted, watch
