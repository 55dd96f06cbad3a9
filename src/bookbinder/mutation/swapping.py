"""Put a mutant into modules that are already imported, without importing them anew.

Whoever took a function by ``from … import`` holds the function itself, so it is the
function that changes: its code, or its defaults. A constant is replaced wherever a
module holds it.
"""

import ast
import gc
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from bookbinder.mutation.operators import Mutant, apply

__all__ = ["NotImportableError", "Swapper"]


class NotImportableError(Exception):
    """A module with this mutant in it could not even be imported."""


class Swapper:
    """All functions of some modules, wherever they are held; made once, before a fork.

    Args:
        files: The files of the modules, which are imported.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        names = {str(file) for file in files}
        self.modules = {
            module.__file__: module
            for module in list(sys.modules.values())
            if getattr(module, "__file__", None) in names
        }
        self.functions = defaultdict[tuple[str, str], list[FunctionType]](list)
        self.wrappers = defaultdict[tuple[str, str], list[FunctionType]](list)
        for found in gc.get_objects():
            if type(found) is not FunctionType:
                continue
            inner = inspect.unwrap(found) if hasattr(found, "__wrapped__") else found
            code = getattr(inner, "__code__", None)
            if code is not None and code.co_filename in names:
                key = code.co_filename, code.co_qualname
                (self.functions if found is inner else self.wrappers)[key].append(found)

    def swap(self, file: Path, source: str, mutant: Mutant) -> None:
        """Put a mutant of a file's source in."""
        tree = apply(source, mutant.number)
        module = self.modules[str(file)]
        key = str(file), mutant.function
        if not mutant.function:
            self._replace_constants(tree, mutant, module)
        elif mutant.parameter:
            value = _default(tree, mutant, module)
            for function in self.functions[key]:
                _set_default(function, mutant.parameter, value)
            for wrapper in self.wrappers[key]:
                _set_in_signatures(wrapper, mutant.parameter, value)
        else:
            (code,) = [
                code
                for code in _codes(compile(tree, str(file), "exec"))
                if code.co_qualname == mutant.function
            ]
            for function in self.functions[key]:
                function.__code__ = code

    def _replace_constants(
        self, tree: ast.Module, mutant: Mutant, module: ModuleType
    ) -> None:
        (statement,) = [
            node
            for node in tree.body
            if node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
        ]
        before = dict(vars(module))
        made: dict[str, Any] = {}
        alone = ast.fix_missing_locations(ast.Module([statement], []))
        code = compile(alone, module.__file__ or "", "exec")
        try:
            exec(code, vars(module), made)
        except Exception as error:
            raise NotImportableError from error
        for name in _bound(statement) - made.keys():
            self._take_out(name, module)
        for name, value in made.items():
            for holder in list(sys.modules.values()):
                held = getattr(holder, "__dict__", {})
                # Under its own name: a small number is one object for all of Python,
                # and whoever has another use for 7 keeps it.
                if holder is module or (
                    name in held
                    and held[name] is before[name]
                    and holder.__name__.startswith(
                        ("tested_transformer", "tests", "test_")
                    )
                ):
                    held[name] = value

    def _take_out(self, name: str, module: ModuleType) -> None:
        """Let a module be without a name; whoever imports that cannot be imported."""
        value = vars(module).pop(name)
        for holder in list(sys.modules.values()):
            ours = getattr(holder, "__name__", "").startswith("tested_transformer")
            if ours and name[0] != "_" and vars(holder).get(name, ours) is value:
                raise NotImportableError


def _bound(statement: ast.stmt) -> set[str]:
    """Give the names that a statement would bind, if it ran."""
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give the code of the functions of a module and of the methods of its classes."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            if inner.co_qualname == inner.co_name:
                yield from _codes(inner)


def _default(tree: ast.Module, mutant: Mutant, module: ModuleType) -> Any:
    """Evaluate a mutated default where it stands."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.lineno > mutant.line:
            continue
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        late = named[len(named) - len(arguments.defaults) :]
        pairs = zip(late, arguments.defaults, strict=True)
        for argument, default in [
            *pairs,
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]:
            if argument.arg == mutant.parameter and default is not None:
                if default.lineno != mutant.line:
                    continue
                expression = ast.fix_missing_locations(ast.Expression(default))
                code = compile(expression, "<default>", "eval")
                try:
                    return eval(code, vars(module))
                except Exception as error:
                    raise NotImportableError from error
    raise ValueError(f"no default of {mutant.parameter} at line {mutant.line}")


def _set_default(function: FunctionType, name: str, value: Any) -> None:
    keyword_only = function.__kwdefaults__ or {}
    if name in keyword_only:
        function.__kwdefaults__ = {**keyword_only, name: value}
        return
    code = function.__code__
    named = code.co_varnames[: code.co_argcount]
    defaults = list(function.__defaults__ or ())
    defaults[named.index(name) - len(named)] = value
    function.__defaults__ = tuple(defaults)


def _set_in_signatures(function: FunctionType, name: str, value: Any) -> None:
    """Change a default in the signatures that shape checks have kept of a function."""
    queue, seen = [function], set[int]()
    while queue:
        holder = queue.pop()
        for cell in holder.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            if isinstance(held, inspect.Signature) and name in held.parameters:
                parameters = [
                    each.replace(default=value) if each.name == name else each
                    for each in held.parameters.values()
                ]
                cell.cell_contents = held.replace(parameters=parameters)
            elif type(held) is FunctionType and id(held) not in seen:
                seen.add(id(held))
                if (held.__module__ or "").startswith("jaxtyping"):
                    queue.append(held)
