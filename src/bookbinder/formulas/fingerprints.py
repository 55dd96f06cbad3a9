r"""Tell whether two expressions compute the same, whatever they are written in.

Each letter gets a number that follows from its name, and the whole is computed. So
``2 * num_layers * H_kv * head_dim`` has the print of $2 \, L \, H_\text{kv} \, d_k$,
and no other product of sizes has. Matrices have none: there the order matters.
"""

import ast
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from bookbinder.formulas.terms import (
    Named,
    Number,
    Power,
    Product,
    Sum,
    Symbol,
    Term,
)

__all__ = ["Print", "print_of", "prints_in"]

# What code calls the letters of Notation.
_CALLED = {
    **{"num_heads": "H", "d_model": "D", "head_dim": "d_k", "num_layers": "L"},
    **{"num_kv_heads": "H_kv", "vocab_size": "V", "max_seq_len": "T_max"},
    **{"temperature": "tau", "d_context": "C"},
}
# Capitals that are numbers; every other is a matrix.
_SIZES = {*"BHTSDLVNC"}
_FUNCTIONS = {
    **{r"\exp": math.exp, "exp": math.exp, r"\ln": math.log, "log": math.log},
    **{r"\sin": math.sin, "sin": math.sin, r"\cos": math.cos, "cos": math.cos},
    **{r"\tanh": math.tanh, "tanh": math.tanh, "root": math.sqrt, "sqrt": math.sqrt},
    **{"log2": math.log2},
}


class Print(NamedTuple):
    """What an expression comes to, to some digits, and the letters that it takes."""

    letters: frozenset[str]
    value: float


class _UnknownError(Exception):
    """Something that is computed in another way."""


class _Computed(NamedTuple):
    value: float
    letters: frozenset[str]


def print_of(term: Term) -> Print | None:
    """Give the print of a formula; nothing if it has matrices, sums over, or cases."""
    try:
        return _print(_of_term(term))
    except (_UnknownError, ArithmeticError, ValueError):
        return None


def _print(computed: _Computed) -> Print:
    return Print(computed.letters, float(f"{computed.value:.9g}"))


def prints_in(program: str) -> Iterator[Print]:
    """Give the print of each expression of a program that computes something."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call):
                with suppress(_UnknownError, ArithmeticError, ValueError):
                    yield _print(_of_code(node))


def _letter(name: str) -> _Computed:
    name = name.removeprefix("\\")
    name = _CALLED.get(name, name)
    # Between 1 and 3, so that powers stay small, and differences are seldom negative.
    value = 1 + 2 * zlib.crc32(name.encode()) / 2**32
    return _Computed(value, frozenset({name}))


def _joined(sign: str, one: _Computed, other: _Computed) -> _Computed:
    first, second = one.value, other.value
    match sign:
        case "+":
            value = first + second
        case "-":
            value = first - second
        case "" | "·" | "⊙" | "*":
            value = first * second
        case "/":
            value = first / second
        case "^":
            value = first**second
        case "mod":  # Stands for itself: few numbers would tell it from others.
            value = 0.371 * first + 1.913 * second
        case _:
            raise _UnknownError(sign)
    if isinstance(value, complex):
        raise _UnknownError(sign)
    return _Computed(value, one.letters | other.letters)


def _applied(name: str, of: _Computed) -> _Computed:
    if name == "floor":  # So does this.
        return _Computed(0.577 * of.value + 5, of.letters)
    if name not in _FUNCTIONS:
        raise _UnknownError(name)
    return _Computed(_FUNCTIONS[name](of.value), of.letters)


def _of_term(term: Term) -> _Computed:
    match term:
        case Number(value):
            return _Computed(value, frozenset())
        case Symbol(r"\pi"):
            return _Computed(math.pi, frozenset())
        case Symbol("e", ()):
            return _Computed(math.e, frozenset())
        case Symbol(name, index):
            if re.fullmatch("[A-Z]", name[0]) and name not in _SIZES and len(name) < 3:
                raise _UnknownError(name)
            return _letter("_".join([name, *map(_written, index)]))
        case Named(function, of):
            if function.name == "fraction":
                return _joined("/", _of_term(of[0]), _of_term(of[1]))
            name = function.name
            if name == r"\log":
                name = f"log{_written(function.index[0])}" if function.index else ""
            if len(of) != 1:
                raise _UnknownError(function.name)
            return _applied(name, _of_term(of[0]))
        case Sum(terms):
            total = _Computed(0.0, frozenset())
            for sign, each in terms:
                total = _joined("+" if sign > 0 else "-", total, _of_term(each))
            return total
        case Product(first, others):
            value = _of_term(first)
            for sign, other in others:
                value = _joined(sign, value, _of_term(other))
            return value
        case Power(base, exponent) if exponent is not None:
            return _joined("^", _of_term(base), _of_term(exponent))
        case _:
            raise _UnknownError(type(term).__name__)


def _written(index: Term) -> str:
    match index:
        case Symbol(name, ()):
            return name
        case Number(value):
            return f"{value:.0f}"
        case _:
            raise _UnknownError("an index")


_SIGNS: dict[type[ast.operator], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^"},
    **{ast.Mod: "mod", ast.FloorDiv: "//"},
}


def _of_code(node: ast.expr) -> _Computed:
    match node:
        case ast.Constant(int(value) | float(value)):
            return _Computed(float(value), frozenset())
        case ast.Name(name) | ast.Attribute(_, name):
            return _letter(name)
        case ast.Subscript(ast.Name(name), index):
            each = index.elts if isinstance(index, ast.Tuple) else [index]
            return _letter("_".join([name, *map(ast.unparse, each)]))
        case ast.UnaryOp(ast.USub(), operand):
            return _joined("-", _Computed(0.0, frozenset()), _of_code(operand))
        case ast.BinOp(left, sign, right):
            one, other = _of_code(left), _of_code(right)
            if isinstance(sign, ast.FloorDiv):
                return _applied("floor", _joined("/", one, other))
            return _joined(_SIGNS.get(type(sign), "?"), one, other)
        case ast.Call(ast.Attribute(ast.Name("math" | "torch" | "np"), name), [of]):
            return _applied(name, _of_code(of))
        case ast.Call(ast.Attribute(of, name), []):
            return _applied(name, _of_code(of))
        case ast.Call(ast.Name(name), [of]):
            return _applied(name, _of_code(of))
        case _:
            raise _UnknownError(type(node).__name__)
