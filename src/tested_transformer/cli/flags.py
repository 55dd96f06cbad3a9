"""Flags named after the parameters that they set: ``--d-model`` sets ``d_model``.

Name, type, default and help come from the signature and the docstring of a dataclass or
function, so the library's errors make sense on the command line.
"""

import argparse
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Call", "Flags", "Source", "add_flags", "arguments_for", "check_at_least"]

Source = Callable[..., Any]

_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}


class Flags(NamedTuple):
    """A group of flags: a title, the parameters they set, and other defaults."""

    title: str
    source: Source
    defaults: Iterable[Mapping[str, Any]] = ({},)  # help shows those of every mapping
    leave_out: Collection[str] = ()


def add_flags(parser: argparse.ArgumentParser, flags: Flags) -> None:
    """Add a flag for each parameter whose type fits a command line.

    A parameter that is not keyword-only becomes a positional argument. The parser has
    no defaults, so that it returns only what was typed.
    """
    title, source, defaults, leave_out = flags
    group = _group(parser, title)
    hints, texts = typing.get_type_hints(source), _texts(source)
    for name, parameter in inspect.signature(source).parameters.items():
        settings = _settings(hints[name])
        if settings is None or name in leave_out:
            continue
        values = dict.fromkeys(_shown(x.get(name, parameter.default)) for x in defaults)
        values = {} if {*values} <= {"none", ""} else values
        text = texts.get(name, "") + (f" ({' or '.join(values)})" if values else "")
        settings |= {"default": argparse.SUPPRESS, "help": text.replace("%", "%%")}
        if parameter.kind is parameter.KEYWORD_ONLY:
            flag = "--" + name.rstrip("_").replace("_", "-")  # with_ is --with
            group.add_argument(flag, dest=name, **settings)
        else:
            group.add_argument(name, nargs="?", **settings | {"metavar": name.upper()})


def _group(
    parser: argparse.ArgumentParser, title: str
) -> argparse.ArgumentParser | argparse._ArgumentGroup:
    """Return the group with a title, a new one if there is none."""
    if title == "options":
        return parser
    titled = [group for group in parser._action_groups if group.title == title]
    return titled[0] if titled else parser.add_argument_group(title)


def arguments_for(
    arguments: argparse.Namespace, source: Source, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """Return the typed arguments that are parameters of a dataclass or a function."""
    names = inspect.signature(source).parameters.keys() - {*leave_out}
    return {name: value for name, value in vars(arguments).items() if name in names}


def check_at_least(least: int, **numbers: int | None) -> None:
    """Raise a ValueError that names the first number that is too small."""
    for name, number in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{name}={number} must be at least {least}")


def _settings(hint: Any) -> dict[str, Any] | None:
    """Return argparse's settings for values of a type; ``None`` if it does not fit."""
    kinds, optional = _kinds(hint)
    # Sequences first: a parameter may accept a sequence or a single number.
    kind, *single = sorted(kinds, key=lambda k: k in _METAVARS)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if origin is typing.Literal:
        return {"choices": parts}
    if origin is Mapping:
        return {"nargs": "+", "metavar": "NAME=VALUE", "type": _pair}
    if origin is list and parts[0] in _METAVARS:
        return {"action": "append", "metavar": _METAVARS[parts[0]], "type": parts[0]}
    if origin in (tuple, Sequence):
        [kind], item_optional = _kinds(parts[0])
        metavars = [_METAVARS.get(part, "...") for part in parts[1:] or (...,)]
        first = "yes|no" if kind is bool else _METAVARS.get(kind)
        one = _converter(_switch if kind is bool else kind, item_optional)
        if first is None:
            return None
        return {
            "metavar": ",".join([first, *metavars]),
            "type": _converter(one, optional, "one or many" if single else "many"),
        }
    if kind in _METAVARS and not single:
        return {"metavar": _METAVARS[kind], "type": _converter(kind, optional)}
    return None


def _kinds(hint: Any) -> tuple[list[Any], bool]:
    """Return the types of a union except ``None``, and whether ``None`` was in it."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return [hint], False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds, len(kinds) < len(typing.get_args(hint))


def _converter(
    kind: Callable[[str], Any], optional: bool, length: str = "one"
) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if optional and text == "none":
            return None
        many = length == "many" or (length == "one or many" and "," in text)
        return tuple(map(kind, text.split(","))) if many else kind(text)

    convert.__name__ = kind.__name__  # argparse shows it
    return convert


def _switch(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r} is not yes or no")
    return text == "yes"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _texts(source: Source) -> dict[str, str]:
    """Return the first sentence of a docstring about each argument."""
    module = sys.modules[source.__module__]

    def spell_out(match: re.Match[str]) -> str:
        values = getattr(module, match[1], None)
        return ", ".join(values) if isinstance(values, (tuple, Mapping)) else match[1]

    listed = (inspect.getdoc(source) or "").partition("\nArgs:\n")[2]
    texts = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    for at, (name, text) in enumerate(texts):
        first = re.split(r"\.\s", " ".join(text.split()))[0].rstrip(".")
        first = re.sub(r"``None``", "none", first)
        first = re.sub(r"``(?:\w+\.)?([A-Z_]+)``", spell_out, first)
        texts[at] = (name, first.replace("``", ""))
    return dict(texts)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, str)):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else ""


class Call(NamedTuple):
    """How a command was called: its device, output format, and arguments."""

    device: Any
    as_json: bool
    words: list[str]
