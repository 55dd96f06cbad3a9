"""A mutant is met by whoever took the function, the default or the constant before."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bookbinder.mutation.operators import Mutant, mutants
from bookbinder.mutation.swapping import NotImportableError, Swapper

SOURCE = """
from functools import wraps

LIMIT = 7


def kept(function):
    @wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


@kept
def add(x, by=1, *, times=2):
    return (x + by) * times


def below(x):
    return x < LIMIT


class Base:
    def start(self):
        self.base = True


class Counter(Base):
    def start(self):
        super().start()
        self.count = 0
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "tested_transformer_example.py"
    file.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules[file.stem]


def swap(module: ModuleType, change: str) -> None:
    (mutant,) = [each for each in mutants(SOURCE) if each.change == change]
    assert isinstance(mutant, Mutant)
    file = Path(module.__file__ or "")
    Swapper([file]).swap(file, SOURCE, mutant)


def test_the_code_of_a_function_through_its_wrapper(module: ModuleType):
    add = module.add
    assert add(3) == 8
    swap(module, "x + by -> x - by")
    assert add(3) == 4


def test_defaults(module: ModuleType):
    add = module.add
    swap(module, "1 -> 2")
    assert add(3) == 10
    swap(module, "2 -> 3")
    assert add(3) == 15
    assert add(3, 1, times=2) == 8


def test_a_constant_wherever_it_is_held_and_no_other(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    assert not module.below(7)
    taken = ModuleType("tests.takes_it")
    taken.LIMIT, taken.SIZE = module.LIMIT, 7
    monkeypatch.setitem(sys.modules, taken.__name__, taken)
    swap(module, "7 -> 8")
    assert (taken.LIMIT, taken.SIZE) == (8, 7)
    assert module.LIMIT == 8
    assert module.below(7)


def test_a_constant_that_is_gone(module: ModuleType, monkeypatch: pytest.MonkeyPatch):
    swap(module, "LIMIT = 7 -> nothing")
    with pytest.raises(NameError, match="LIMIT"):
        module.below(7)
    module.LIMIT = 7
    taken = ModuleType("tested_transformer.takes_it")
    taken.LIMIT = module.LIMIT
    monkeypatch.setitem(sys.modules, taken.__name__, taken)
    with pytest.raises(NotImportableError):
        swap(module, "LIMIT = 7 -> nothing")


def test_a_method_that_loses_its_super(module: ModuleType):
    counter = module.Counter()
    swap(module, "super().start() -> nothing")
    counter.start()
    assert vars(counter) == {"count": 0}


def test_defaults_that_shape_checks_keep():
    from tested_transformer.positions import rotary_table

    file = Path(sys.modules["tested_transformer.positions"].__file__ or "")
    source = file.read_text("utf-8")
    (mutant,) = [
        each
        for each in mutants(source)
        if each.function == "rotary_table" and each.parameter == "base"
    ]
    back = Swapper([file])
    positions = torch.arange(3)
    before = rotary_table(positions, 4)
    try:
        Swapper([file]).swap(file, source, mutant)
        doubled = rotary_table(positions, 4, base=20_000.0)
        assert torch.equal(rotary_table(positions, 4), doubled)
        assert not torch.equal(before, doubled)
    finally:
        back.swap(file, source.replace("10_000.0", "5_000.0"), mutant)
    assert torch.equal(rotary_table(positions, 4), before)
