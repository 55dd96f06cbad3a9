"""Signatures stand in the reference as they do in the source."""

from pathlib import Path

import griffe
import pytest
from griffe import Extensions

from bookbinder.wayfinding.entries import EntryExtension

SOURCE = '''"""A module."""

from typing import TypeVar

_Pair = tuple[Float[Tensor, "B T"], str]
_T = TypeVar("_T")
__all__ = ["look"]
ORDER = ("last", 'first')


def look(q: Int[Tensor, "B"], /, *more: torch.dtype, kind: str = 'open') -> _Pair:
    """Look."""


def keep(value: _T, by=_Pair, ahead: list["Later"] = []) -> "Later":
    """Keep."""
'''


def test_a_signature_is_that_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "tested_transformer"
    package.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    (package / "masks.py").write_text(SOURCE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPO_URL", "https://github.com/me/book/")
    loaded = griffe.load(
        "tested_transformer",
        search_paths=[tmp_path / "src"],
        extensions=Extensions(EntryExtension()),
    )
    look, keep = loaded["masks.look"], loaded["masks.keep"]
    assert [str(parameter.annotation) for parameter in look.parameters] == [
        'Int[Tensor, "B"]',
        "torch.dtype",
        "str",
    ]
    assert look.parameters["kind"].default == '"open"'
    assert look.returns == 'tuple[Float[Tensor, "B T"], str]'
    assert keep.parameters["value"].annotation == "_T"
    assert keep.parameters["by"].default == "..."
    assert keep.parameters["ahead"].annotation == "list[Later]"
    assert keep.returns == "Later"
    source = "https://github.com/me/book/blob/main/src/tested_transformer/masks.py"
    assert look.docstring.value == f"Look.\n\n[Source]({source}#L11-L12)."
    assert loaded["masks.ORDER"].value == '("last", "first")'
