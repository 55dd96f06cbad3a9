"""A Griffe extension: a signature in the reference says nothing that is not public.

An alias that begins with an underscore gives way to what it stands for. A value that is
made of private names is shown as an ellipsis, as in a stub. And strings have the quotes
that they have in the source, as they do where a formatter broke the signature: the axes
of a tensor as well, which Griffe takes for Python where it can.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from griffe import (
    Attribute,
    Class,
    Expr,
    ExprCall,
    ExprConstant,
    ExprName,
    ExprSubscript,
    ExprTuple,
    Extension,
    Function,
    Module,
)

from bookbinder.wayfinding.appearances import PACKAGE

__all__ = ["SignatureExtension", "mend"]

_PRIVATE = re.compile(r"(?<![\w.\"'])_[A-Za-z]")
_TENSORS = ("Bool", "Float", "Int", "Integer")
_SINGLE = re.compile(r"'([^'\"\\]*)'")

Value = Expr | str | None


class SignatureExtension(Extension):
    """Write the signatures of the library for those who call it."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Mend those of the whole library, once it is loaded."""
        if pkg.path == PACKAGE:
            mend(pkg)


def mend(owner: Module | Class) -> None:
    """Mend the signatures of all that a module or class has, and of what these have."""
    for member in owner.members.values():
        if isinstance(member, Function):
            for function in (member, *(member.overloads or ())):
                _mend_function(function)
        elif isinstance(member, Attribute) and not member.name.startswith("_"):
            member.annotation = _spelled_out(member.annotation, member.module)
            member.value = _shown(member.value)
        elif isinstance(member, Module | Class):
            mend(member)
    for overloads in owner.overloads.values():
        for function in overloads:
            _mend_function(function)


def _mend_function(function: Function) -> None:
    function.returns = _spelled_out(function.returns, function.module)
    for parameter in function.parameters:
        parameter.annotation = _spelled_out(parameter.annotation, function.module)
        parameter.default = _shown(parameter.default)


def _shown(value: Value) -> Value:
    return "..." if _PRIVATE.search(str(value or "")) else _quoted(value)


def _spelled_out(value: Value, module: Module) -> Value:
    """Write what private aliases stand for in their place."""

    def meant(part: Any) -> Any:
        if isinstance(part, ExprName) and part.name.startswith("_"):
            alias = module.members.get(part.name)
            stood_for = alias.value if isinstance(alias, Attribute) else None
            # A type variable is a call, and stands for nothing else.
            if isinstance(stood_for, Expr) and not isinstance(stood_for, ExprCall):
                return _spelled_out(stood_for, module)
        if isinstance(part, ExprSubscript) and str(part.left) in _TENSORS:
            assert isinstance(part.slice, ExprTuple)
            tensor, axes = part.slice.elements
            part.slice.elements = [tensor, _axes(axes)]
        return part

    return _quoted(_each(value, meant))


def _axes(value: Expr | str) -> Expr | str:
    """Give back the quotes to what was read as a name, a product or an ellipsis."""
    said = str(value)
    return value if said[0] in "'\"" else f'"{said.replace(" * ", " *")}"'


def _quoted(value: Value) -> Value:
    def quoted(part: Any) -> Any:
        if isinstance(part, str):
            return _SINGLE.sub(r'"\1"', part) if _SINGLE.fullmatch(part) else part
        if isinstance(part, ExprConstant):
            part.value = quoted(part.value)
        return part

    return _each(value, quoted)


def _each(part: Any, change: Callable[[Any], Any]) -> Any:
    """Change an expression, from without to within."""
    changed = change(part)
    if isinstance(changed, Expr):
        for name, inner in _inside(changed):
            if isinstance(inner, Expr):
                setattr(changed, name, _each(inner, change))
            elif isinstance(inner, list):
                setattr(changed, name, [_each(each, change) for each in inner])
    return changed


def _inside(expression: Expr) -> Iterator[tuple[str, Any]]:
    for field in fields(expression):
        if field.name != "parent":
            yield field.name, getattr(expression, field.name)
