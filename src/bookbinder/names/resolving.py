"""Look the names of a piece of Python up in the library, in Python and in PyTorch."""

import ast
import builtins
import inspect
import keyword
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import flex_attention

import tested_transformer

__all__ = ["LIBRARY", "known_names", "wrong_python"]

LIBRARY = Path(tested_transformer.__file__).parent
_DOTS = re.compile(r"…|\.\.\.")
# An argument whose value does not matter: f(x, mask=)
_BARE = re.compile(r"(?<=\w)=(?=\s*[,)])")
_CALLED = {"np": "numpy", "jnp": "jax", "plt": "matplotlib"}
_MODULES = {"torch": torch, "nn": nn, "F": F, "Tensor": torch.Tensor}
# Imported only where a page names something of theirs.
_OTHERS = {
    **{"math": "math", "np": "numpy", "numpy": "numpy", "jax": "jax", "flax": "flax"},
    **{"jnp": "jax.numpy", "nnx": "flax.nnx"},
}


def wrong_python(
    text: str, own: frozenset[str], attributes: frozenset[str]
) -> str | None:
    """Say what name of a piece of Python is that of nothing, or nothing.

    Args:
        text: An expression, a statement, or an argument with or without its value.
        own: The names that its page knows besides.
        attributes: The attributes that it uses.
    """
    tree = _parsed(_BARE.sub("=...", _DOTS.sub("...", text)))
    if tree is None:
        return "neither Python nor anything that a block of this page shows"
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) | ast.arg(name):
                known = own | known_names()
                if not (name in known or _installed(name)):
                    return f"nothing is called {name}{_meant(name, known)}"
            case ast.keyword(str(name)):
                if name not in own | _parameters():
                    return f"nothing takes {name}{_meant(name, _parameters())}"
            case ast.Attribute(_, name):
                found = _resolved(node)
                if found is False or (
                    found is None and name not in attributes | _attributes()
                ):
                    near = _meant(name, attributes | _attributes())
                    return f"nothing has an attribute {name}{near}"
            case ast.Call(function, _, keywords):
                wrong = _wrong_keyword(function, keywords)
                if wrong:
                    return wrong
            case _:
                pass
    return None


def _meant(name: str, known: frozenset[str]) -> str:
    """Give the name that may have been meant, and else what to do."""
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return f": {near[0]}?" if near else ": name what there is, or show it in a block"


def _installed(name: str) -> bool:
    """Tell whether a name is that of a package, or what one is always called."""
    return find_spec(_CALLED.get(name, name)) is not None


def _parsed(text: str) -> ast.AST | None:
    """Parse an expression, a keyword with or without a value, or a statement."""
    forms = [text, f"_({text})", f"_({text}None)", f"_{text}", f"_[{text}]"]
    for form in forms:
        try:
            tree = ast.parse(form)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "_":
                node.id = "None"
        return tree
    return None


def _resolved(node: ast.Attribute) -> bool | None:
    """Tell whether a dotted path leads anywhere; None if its root says nothing."""
    path = [node.attr]
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        path.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name):
        return None
    found = _root(value.id)
    if found is None:
        return None
    for name in reversed(path):
        if found is tested_transformer and find_spec(f"{found.__name__}.{name}"):
            import_module(f"{found.__name__}.{name}")
        if value.id in _OTHERS and hasattr(found, "__path__"):
            with suppress(ImportError):
                import_module(f"{found.__name__}.{name}")
        if not hasattr(found, name):
            return name in getattr(found, "__annotations__", {})
        found = getattr(found, name)
    return True


@cache
def _root(name: str) -> Any:
    """Give a module or a class whose attributes are known."""
    if name in _MODULES:
        return _MODULES[name]
    if name in _OTHERS and find_spec(_OTHERS[name].partition(".")[0]):
        return import_module(_OTHERS[name])
    if inspect.isclass(getattr(builtins, name, None)):
        return getattr(builtins, name)
    if name == "tested_transformer":
        return tested_transformer
    home = _homes().get(name)
    found = getattr(import_module(home), name) if home else None
    # A page may well call something of its own as a function is called somewhere.
    return (
        found if inspect.isclass(found) or name in tested_transformer.__all__ else None
    )


def _wrong_keyword(function: ast.expr, keywords: list[ast.keyword]) -> str | None:
    """Ask a function of the library or of torch for the arguments it is shown with."""
    called: Any = None
    match function:
        case ast.Name(name):
            called = _root(name)
        case ast.Attribute(ast.Name(name), attribute):
            called = getattr(_root(name), attribute, None)
        case _:
            pass
    try:
        takes = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return None
    if any(argument.kind == argument.VAR_KEYWORD for argument in takes.values()):
        return None
    for word in keywords:
        if word.arg and word.arg not in takes:
            return f"{ast.unparse(function)} takes no {word.arg}"
    return None


@cache
def _homes() -> dict[str, str]:
    """Give the module of each public name of the library, without importing any."""
    homes: dict[str, str] = {}
    for file in sorted(LIBRARY.rglob("*.py")):
        parts = file.relative_to(LIBRARY.parent).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name("__all__")], value=listed):
                    homes |= dict.fromkeys(ast.literal_eval(listed), module)
                case _:
                    pass
    return homes


@cache
def known_names() -> frozenset[str]:
    """Give what may stand alone: of the library, of Python, of torch."""
    torchs = {
        name
        for place in (torch, torch.Tensor, F, nn, torch.optim)
        for name in dir(place)
    }
    pythons = {*dir(builtins), *sys.stdlib_module_names, *keyword.kwlist}
    return frozenset({*_parameters(), *torchs, *pythons, *_MODULES})


@cache
def _attributes() -> frozenset[str]:
    places = (torch.Tensor, nn.Module, dict, list, str)
    found = {name for place in places for name in dir(place)}
    return frozenset({*found, *_library_words(), "savefig"})


@cache
def _parameters() -> frozenset[str]:
    """Give the names of all arguments of the library, of torch.nn and its functions."""
    found: set[str] = set(_library_words())
    for place in (F, nn, flex_attention):
        for name in dir(place):
            value = getattr(place, name)
            parts = (
                (value, getattr(value, "forward", None))
                if inspect.isclass(value)
                else (value,)
            )
            for part in parts:
                if not callable(part):
                    continue
                try:
                    found |= inspect.signature(part).parameters.keys()
                except (ValueError, TypeError):
                    # Written in C++: the signature is the first line of its help.
                    head = str(part.__doc__).strip().partition("->")[0]
                    found |= {*re.findall(r"(\w+)=", head)}
    return frozenset(found)


@cache
def _library_words() -> frozenset[str]:
    """Give what the library defines: functions, arguments, attributes, modules."""
    found = {"tested_transformer"}
    for file in LIBRARY.rglob("*.py"):
        found.add(file.stem)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case (
                    ast.FunctionDef(name)
                    | ast.ClassDef(name)
                    | ast.arg(name)
                    | ast.alias(name)
                    | ast.Attribute(_, name, ast.Store())
                ):
                    found.add(name)
                case _:
                    pass
            if isinstance(node, ast.Module | ast.ClassDef):
                found |= {
                    target.id
                    for statement in node.body
                    for target in getattr(
                        statement, "targets", [getattr(statement, "target", None)]
                    )
                    if isinstance(target, ast.Name)
                }
        found.add(file.parent.name)
    return frozenset(name for name in found if not name.startswith("_"))
