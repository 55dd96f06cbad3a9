"""A Griffe extension for the reference entries of the library's names.

It adds to each docstring the chapters that list and use the name and, in a fork that
says where it lies, a link to the source. Signatures are those
of the source, with the axes of tensors in quotes; a private alias is replaced by what
it stands for, and a value made of private names by an ellipsis, as in a stub.
"""

import ast
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from griffe import (
    Attribute,
    Docstring,
    Extension,
    Function,
    GriffeLoader,
    Module,
    ModulesCollection,
)

from bookbinder.places import PACKAGES
from bookbinder.wayfinding.appearances import Appearances, exports, pages_of
from bookbinder.wayfinding.whereabouts import way

_PRIVATE = re.compile(r"(?<![\w.\"])_[A-Za-z]\w*")
# A class that is named before it is defined.
_AHEAD = re.compile(r'"([A-Z][a-z]\w+)"')


class EntryExtension(Extension):
    """Adjust the entries of the reference."""

    def on_function_instance(self, *, node: Any, func: Function, **kwargs: Any) -> None:
        """Write the types and the defaults of a function as its source does."""
        if isinstance(node, ast.FunctionDef) and func.path.startswith(PACKAGES):
            func.returns = _type(node.returns, func)
            for argument in ast.iter_child_nodes(node.args):  # not those of a lambda
                if isinstance(argument, ast.arg):
                    parameter = func.parameters[argument.arg]
                    parameter.annotation = _type(argument.annotation, func)
                    parameter.default = _value(parameter.default)

    def on_attribute_instance(
        self, *, node: Any, attr: Attribute, **kwargs: Any
    ) -> None:
        """Write the type and the value of an attribute as its source does."""
        if attr.path.startswith(PACKAGES) and attr.name[0] != "_":
            written = getattr(node, "returns", None) or getattr(
                node, "annotation", None
            )
            attr.annotation = _type(written, attr) if written else attr.annotation
            attr.value = _value(attr.value)

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **kwargs: Any) -> None:
        """Add the chapters of each name, once all modules are loaded."""
        if pkg.path not in PACKAGES:
            return
        root = Path.cwd()
        pages = _pages(root, loader.modules_collection)
        for module, names in exports(root).items():
            package, _, inside = module.partition(".")
            for name in names if package == pkg.path else []:
                member = (pkg[inside] if inside else pkg)[name]
                target = member.final_target if member.is_alias else member
                target.docstring = target.docstring or Docstring("", parent=target)
                line = appearance_line(f"{module}.{name}", pages)
                line = f"{line} {source_link(target, root)}".strip()
                target.docstring.value = f"{target.docstring.value}\n\n{line}".strip()


@lru_cache(maxsize=1)
def _pages(root: Path, build: ModulesCollection) -> dict[str, Appearances]:
    """Return the appearances on all pages, which all packages of a build share."""
    return pages_of(root)


def _type(node: ast.expr | None, owner: Function | Attribute) -> str | None:
    def meant(alias: re.Match[str]) -> str:
        stood_for = getattr(owner.module.members.get(alias[0]), "value", None)
        # A type variable is a call, and not an alias.
        known = stood_for is not None and "(" not in str(stood_for)
        return str(stood_for).replace("'", '"') if known else alias[0]

    if node is None:
        return None
    return _PRIVATE.sub(meant, _AHEAD.sub(r"\1", ast.unparse(node).replace("'", '"')))


def _value(value: Any) -> Any:
    written = str(value).replace("'", '"')
    if value is None or written.startswith("field("):  # that Griffe reads later
        return value
    return "..." if _PRIVATE.search(written) else written


def source_link(member: Any, root: Path) -> str:
    """Return in Markdown a link to the lines of a name, or "" without a repository."""
    if not (repository := os.environ.get("REPO_URL", "").rstrip("/")):
        return ""
    branch = os.environ.get("REPO_BRANCH", "main")
    file = member.filepath.relative_to(root).as_posix()
    lines = f"#L{member.lineno}-L{member.endlineno}"
    return f"[Source]({repository}/blob/{branch}/{file}{lines})."


def appearance_line(name: str, pages: dict[str, Appearances]) -> str:
    """Return in Markdown where the book shows a name, or "" if nowhere."""
    listed: list[str] = []
    used: list[str] = []
    for path, shown in pages.items():
        if name in shown.listed or name in shown.used:
            target = way("reference/module.md", path)
            anchor = shown.listed.get(name)
            link = f"[{shown.title}]({target}{f'#{anchor}' if anchor else ''})"
            (listed if name in shown.listed else used).append(link)
    ways = {"listed": listed, "used": used}
    parts = [f"{how} in {', '.join(links)}" for how, links in ways.items() if links]
    return f"**In the book**: {'; '.join(parts)}." if parts else ""
