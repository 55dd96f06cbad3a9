"""Names from before 0.2: they still work for one release, and warn with the new name.

Only the package's ``__init__`` imports this. The next release removes it.
"""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["find"]

# For each old module, the modules that its names moved to.
_MODULES = {
    "blocks": ("layers", "experts", "gpt", "encoder_decoder"),
    "heads": ("interpret",),
    "implementations": ("book.implementations",),
    "microgpt": ("book.microgpt",),
    "museum": ("checking", "book.museum"),
    "plots": ("book.plots",),
    "text": ("data",),
}
_NAMES = {"scaled_dot_product_attention": "attention_with_weights"}


def find(package: str, name: str) -> object:
    """Return what had this name in the package before 0.2, with a warning.

    Raises:
        AttributeError: If nothing ever had it.
    """
    if name in _NAMES:
        _warn(f"{package}.{name}", f"{package}.{_NAMES[name]}", stacklevel=4)
        return getattr(import_module(package), _NAMES[name])
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _warn(old: str, new: str, *, stacklevel: int = 3) -> None:
    # Point the warning at the user's line rather than at this file.
    warnings.warn(f"{old} is now {new}", FutureWarning, stacklevel=stacklevel)


class _OldModule(ModuleType):
    """Stand in for a module that is gone: find each of its names where it is now."""

    def __init__(self, name: str, homes: tuple[str, ...]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._homes = homes

    def __getattr__(self, name: str) -> object:
        package = self.__name__.partition(".")[0]
        if not name.startswith("__"):
            for home in self._homes:
                module = import_module(f"{package}.{home}")
                if hasattr(module, name):
                    _warn(f"{self.__name__}.{name}", f"{module.__name__}.{name}")
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Finder(MetaPathFinder, Loader):
    """Find the old modules, after every other finder has failed."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package == __package__ and name in _MODULES:
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OldModule(spec.name, _MODULES[spec.name.partition(".")[2]])

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.append(_Finder())
