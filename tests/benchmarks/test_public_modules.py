"""A module is taken out of the files of its project, made and called."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.public.modules import Module, call_of, make, take
from torch import nn

SOURCE = """
import nowhere
raise RuntimeError("only the named parts may run")

if True:
    SIZE = 3

class Unknown(Nowhere): pass

class Layer(nn.Module):
    def __init__(self, width: Nowhere, *, twice: bool):
        super().__init__()
        self.linear = project(width * SIZE ** twice)

    def forward(self, features, positions):
        return self.linear(features) + positions, None
"""
MODULE = Module(
    repository="owner/name",
    commit="0" * 40,
    files={"a/layer.py": ("SIZE", "Layer")},
    make="Layer(2, twice=True)",
    names="from standing_beside import project",
    adapter="positions = x * 0 + 1\nreturn layer(x, positions)[0]",
    given="style='both', d_model=6",
    needs=("owner/beside",),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a checkout, and one that it needs."""
    (tmp_path / "owner+name" / "a").mkdir(parents=True)
    (tmp_path / "owner+name" / "a" / "layer.py").write_text(SOURCE)
    (tmp_path / "owner+beside").mkdir()
    beside = "from torch import nn\ndef project(n): return nn.Linear(n, n)"
    (tmp_path / "owner+beside" / "standing_beside.py").write_text(beside)
    return tmp_path


def test_a_layer_is_made_of_the_named_parts_and_called(folder: Path) -> None:
    layer, names = make(MODULE, folder)
    linear = layer.get_submodule("linear")
    assert isinstance(linear, nn.Linear)
    x = torch.randn(2, 3, 6)
    assert torch.equal(call_of(MODULE, layer, names)(x), linear(x) + 1)
    assert MODULE.arguments == {"style": "both", "d_model": 6}
    assert not any("owner+beside" in each for each in sys.path)


def test_weights_are_drawn_alike_each_time(folder: Path) -> None:
    first, second = (make(MODULE, folder)[0].state_dict() for _ in range(2))
    assert torch.equal(first["linear.weight"], second["linear.weight"])


def test_a_part_that_is_missing_is_named(folder: Path) -> None:
    files = {"a/layer.py": ("Layer", "Head")}
    module = Module(repository="owner/name", commit="", files=files, make="Layer()")
    with pytest.raises(ValueError, match=r"layer.py has no Head$"):
        take(module, folder)


def test_a_notebook_is_read_without_what_is_no_python(folder: Path) -> None:
    cells = [
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!ls\n", SOURCE]},
        {"cell_type": "code", "source": ["this is no program"]},
        {"cell_type": "code", "source": ["SIZE = 5"]},
        {"cell_type": "markdown", "source": ["class Layer: pass"]},
    ]
    book = folder / "owner+name" / "book.ipynb"
    book.write_text(json.dumps({"cells": cells}))
    module = replace(MODULE, files={"book.ipynb": ("SIZE", "Layer")})
    layer, names = make(module, folder)
    assert names["SIZE"] == 5  # what is defined last
    assert layer.get_submodule("linear").weight.shape == (10, 10)
