"""What is wrong with the code of a block, as far as it shows without running it."""

import ast
import re
from collections.abc import Iterator

from bookbinder.reading.claims import claim_problems

_TOLERANCES = {"atol", "rtol", "abs_tol", "rel_tol", "abs", "rel"}
_LOOSEST = 0.1  # for half precision


def code_problems(code: str) -> Iterator[tuple[int, str]]:
    """Give each problem of a block with its line; line 0 is the block as a whole."""
    try:
        tree = ast.parse(code)
        # Some errors, as a return outside a function, show when it is compiled.
        compile(code, "<string>", "exec")
    except SyntaxError as error:
        yield error.lineno or 1, f"SyntaxError: {error.msg}"
        return
    yield from claim_problems(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _private(node):
                reason = f"{name} is private, and may go any day: import a public name"
                yield node.lineno, reason
        if isinstance(node, ast.Name) and node.id == "__name__":
            reason = "__name__ is not set in a run block, so this would never run"
            yield node.lineno, reason
        if isinstance(node, ast.keyword) and node.arg in _TOLERANCES:
            value = node.value.value if isinstance(node.value, ast.Constant) else 0
            if isinstance(value, int | float) and value > _LOOSEST:
                reason = f"{node.arg}={value}: within this, wrong numbers are right too"
                yield node.value.lineno, reason
    if all(_is_idle(node) for node in tree.body):
        yield 0, "this block does nothing when it runs"


def _private(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Give the names that are imported of the library and are not for its users."""
    path = [part for alias in node.names for part in alias.name.split(".")]
    if isinstance(node, ast.ImportFrom) and node.module:
        path = [*node.module.split("."), *path]
    if "tested_transformer" in path:
        yield from (name for name in path if re.match(r"_[a-z]", name))


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
