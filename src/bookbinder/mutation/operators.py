"""Small mistakes in Python: each mutant of a module differs from it in one place.

What is mutated is what a function does, its defaults and the constants of the module.
Docstrings, annotations, decorators, imports and ``__all__`` stay: they are checked by
other means, or compute nothing.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Mutant", "apply", "mutants"]

_SKIPPED = {"annotation", "returns", "decorator_list", "bases"}
_COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_TYPES = {"Bool", "Callable", "Float", "Int"}
_IN_ANY_ORDER = {"min", "max", "transpose", "promote_types", "hypot"}
_MODULES = {"torch", "F", "nn", "math", "functools", "dataclasses", "super"}


@dataclass(frozen=True)
class Mutant:
    """One mistake in one place.

    ``number`` finds it again in the same source; the rest is for people. ``function``
    is the qualified name of the outermost function or method, "" at module level;
    ``lines`` are those that a test has to execute to meet it, none at module level.
    """

    number: int
    operator: str
    function: str
    line: int
    text: str
    change: str
    parameter: str
    lines: tuple[int, ...]


@dataclass
class _Site:
    """A node, and how to put another into its place."""

    node: ast.AST
    put: Callable[[ast.AST], None]
    function: ast.FunctionDef | None
    qualified: str
    parameter: str


def mutants(source: str) -> list[Mutant]:
    """Give every mutant of a module, in the order of its text."""
    texts = source.splitlines()
    found: list[Mutant] = []
    for number, (site, operator, other) in enumerate(_variations(ast.parse(source))):
        line: int = getattr(site.node, "lineno", 1)
        lines: tuple[int, ...] = ()
        change = f"{_written(site.node)} -> {_written(other)}"
        if isinstance(other, ast.Call) and operator == "argument left out":
            change = f"{_written(_left_out(site.node, other))} -> nothing"
        if site.function and site.parameter:
            body = site.function.body
            lines = tuple(range(body[0].lineno, (body[-1].end_lineno or 0) + 1))
        elif site.function:
            lines = tuple(range(line, (getattr(site.node, "end_lineno", 0)) + 1))
        found.append(
            Mutant(
                number,
                operator,
                site.qualified,
                line,
                texts[line - 1].strip(),
                change,
                site.parameter,
                lines,
            )
        )
    return found


def apply(source: str, number: int) -> ast.Module:
    """Give the tree of a module with one mutant of ``mutants`` in it."""
    tree = ast.parse(source)
    for index, (site, _, other) in enumerate(_variations(tree)):
        if index == number:
            site.put(ast.fix_missing_locations(ast.copy_location(other, site.node)))
            return tree
    raise ValueError(f"number={number} is none of the mutants of this source")


def _written(node: ast.AST) -> str:
    if isinstance(node, ast.If) and _is_false(node.test):
        return "nothing"
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _left_out(node: ast.AST, other: ast.Call) -> ast.AST:
    assert isinstance(node, ast.Call)
    return next(each for each in node.keywords if each not in other.keywords)


def _is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _variations(tree: ast.Module) -> Iterator[tuple[_Site, str, ast.AST]]:
    for site in _sites(tree, None, "", ""):
        for operator, other in _others(site.node):
            yield site, operator, other


def _sites(
    parent: ast.AST, function: ast.FunctionDef | None, qualified: str, parameter: str
) -> Iterator[_Site]:
    """Walk over all that may be mutated, parents before their children."""
    for field, value in ast.iter_fields(parent):
        if field in _SKIPPED:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _stays(child):
                continue
            inside, name, argument = function, qualified, parameter
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and function is None:
                name = f"{qualified}.{child.name}" if qualified else child.name
                if isinstance(child, ast.FunctionDef):
                    inside = child
            if isinstance(parent, ast.arguments) and "defaults" in field:
                argument = _parameter(parent, field, index)
            put = _putter(parent, field, index if isinstance(value, list) else None)
            yield _Site(child, put, inside, name, argument)
            yield from _sites(child, inside, name, argument)


def _stays(node: ast.AST) -> bool:
    match node:
        case ast.keyword():
            return _is_claim(node)
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True  # a docstring, or the dots of an overload
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=ast.Subscript(value=ast.Name(id=name))):
            return name in _TYPES
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case _:
            return False


def _is_claim(keyword: ast.keyword) -> bool:
    """Tell whether this is the ``strict`` of ``zip``: like ``assert``, a claim."""
    return keyword.arg == "strict"


def _parameter(arguments: ast.arguments, field: str, index: int) -> str:
    if field == "kw_defaults":
        return arguments.kwonlyargs[index].arg
    named = [*arguments.posonlyargs, *arguments.args]
    return named[index - len(arguments.defaults)].arg


def _putter(
    parent: ast.AST, field: str, index: int | None
) -> Callable[[ast.AST], None]:
    def put(node: ast.AST) -> None:
        if index is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[index] = node

    return put


def _others(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Give what may stand in the place of a node, each with what is wrong with it."""
    match node:
        case ast.Compare(ops=[operator]):
            for other in _COMPARED.get(type(operator), []):
                yield "comparison", _with(node, ops=[other()])
        case ast.BinOp() if type(node.op) in _CALCULATED:
            yield "arithmetic", _with(node, op=_CALCULATED[type(node.op)]())
        case ast.AugAssign() if type(node.op) in _CALCULATED:
            yield "arithmetic", _with(node, op=_CALCULATED[type(node.op)]())
        case ast.UnaryOp():
            yield "sign or negation", node.operand
        case ast.BoolOp(op=operator):
            other = ast.Or if isinstance(operator, ast.And) else ast.And
            yield "and, or", _with(node, op=other())
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", _with(node, test=test, body=orelse, orelse=body)
        case ast.Constant(value=value):
            yield from _other_constants(value)
        case ast.Call():
            yield from _other_calls(node)
        case ast.Slice():
            for end in ("lower", "upper", "step"):
                if getattr(node, end) is not None:
                    yield "slice", _with(node, **{end: None})
        case _:
            pass
    yield from _other_statements(node)


def _other_constants(value: object) -> Iterator[tuple[str, ast.AST]]:
    match value:
        case bool():
            yield "constant", ast.Constant(not value)
        case int():
            yield "constant", ast.Constant(value + 1)
        case float():
            yield "constant", ast.Constant(value * 2 if value else 1.0)
        case str():
            yield "text", ast.Constant(f"{value}x")
        case _:
            pass


def _other_calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    match node.func:
        case ast.Attribute(value=ast.Name(id=name)) if name in _MODULES:
            pass
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            pass
        case ast.Attribute(value=whole):
            yield "call left out", whole
        case _:
            pass
    first, second, *_ = [*node.args, None, None]
    name = ast.unparse(node.func).rpartition(".")[2]
    alike = first and second and ast.unparse(first) == ast.unparse(second)
    if first and second and not alike and name not in _IN_ANY_ORDER:
        swapped = [second, first, *node.args[2:]]
        yield "arguments swapped", _with(node, args=swapped)
    for index, keyword in enumerate(node.keywords):
        rest = node.keywords[:index] + node.keywords[index + 1 :]
        if keyword.arg and not _is_claim(keyword):
            yield "argument left out", _with(node, keywords=rest)


def _other_statements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(test=ast.Compare() | ast.BoolOp() | ast.UnaryOp()):
            pass  # mutated where the condition is
        case ast.If(test=test):
            yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield "result left out", ast.Return(ast.Constant(None))
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise():
            # Not taken out: names stay those of the function, as super() needs.
            yield "statement left out", ast.If(ast.Constant(False), [node], [])
        case ast.Continue():
            yield "statement left out", ast.Break()
        case ast.Break():
            yield "statement left out", ast.Continue()
        case _:
            pass


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
