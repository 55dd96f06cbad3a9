"""Note which arguments of an attention the checks gave more than one value."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.styles import Parameters, parameters_of
from tested_transformer.checking.subject import copied

__all__ = ["Watch", "watched"]

_VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Watch:
    """The arguments that an attention was called with, by name.

    Args:
        parameters: Those of its call.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = {
            name: each
            for name, each in parameters.items()
            if each.kind not in _VARIADIC
        }
        self._signature = inspect.Signature([*parameters.values()])
        self._values: dict[str, set[object]] = {name: set() for name in parameters}
        self._tried: set[str] = set()

    @property
    def untried(self) -> tuple[str, ...]:
        """The arguments that had one value, such as their default, in every call."""
        return tuple(name for name in self._parameters if name not in self._tried)

    def note(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note the arguments of a call that succeeded."""
        call = self._signature.bind(*arguments, **named)
        call.apply_defaults()
        for name, each in self._parameters.items():
            value = call.arguments[name]
            if not _is_plain(value) and value is not each.default:
                self._tried.add(name)  # a mask, a table, a cache
                continue
            seen = self._values[name]
            seen.add(value if _is_plain(value) else "its default")
            if len(seen) > 1:
                self._tried.add(name)


def _is_plain(value: object) -> bool:
    """Return whether a value can be told from others by comparing it."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def watched(attention: Callable[..., Any]) -> tuple[Callable[..., Any], Watch | None]:
    """Return an attention that notes its arguments, and where it does.

    Only a module, or a function that uses no modules, is watched: another function is
    an adapter, whose arguments are those that its author wants to be called with. A
    scripted module takes no hooks.
    """
    if isinstance(attention, torch.jit.ScriptModule):
        return attention, None
    if isinstance(attention, nn.Module):
        watch = Watch(parameters_of(attention))
        module = copied(attention)  # whose copies have the same hook

        def hook(
            module: nn.Module, given: tuple[Any, ...], named: Any, output: Any
        ) -> None:
            watch.note(given, named)

        module.register_forward_hook(hook, with_kwargs=True)
        return module, watch
    plain = isinstance(attention, types.FunctionType)
    if not plain or with_its_modules(attention) is not attention:
        return attention, None
    watch = Watch(parameters_of(attention))

    @functools.wraps(attention)
    def noted(*given: Any, **named: Any) -> Any:
        output = attention(*given, **named)
        watch.note(given, named)
        return output

    return noted, watch
