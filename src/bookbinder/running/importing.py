"""Change the library as it is imported, so that its code reports to the tests."""

import ast
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from bookbinder.places import PACKAGES

Change = Callable[[ast.Module, str, str], dict[str, Any]]
"""A change of a module, given its tree, which is changed in place, its source, and its
file. It returns the global names that the module needs from then on.
"""


def change_imports(*changes: Change, packages: Collection[str] = PACKAGES) -> None:
    """Make changes in all modules that are imported from now on.

    Args:
        changes: The changes.
        packages: The packages, or modules outside packages, in which to make them.
    """
    sys.meta_path.insert(0, _Finder(changes, packages))


class _Finder(MetaPathFinder):
    def __init__(self, changes: Sequence[Change], packages: Collection[str]) -> None:
        self.changes, self.packages = changes, packages

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self.changes)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(name, path)
        self.changes = changes
        self.names: dict[str, Any] = {}

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module; Python's cache is left to its code without changes."""
        source = Path(self.path).read_text("utf-8")
        tree = ast.parse(source, self.path)
        for change in self.changes:
            self.names |= change(tree, source, self.path)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with the names that it needs."""
        code = self.get_code(module.__name__)
        vars(module).update(self.names)
        exec(code, vars(module))
