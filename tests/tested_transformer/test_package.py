"""The names that the package itself offers."""

import subprocess
import sys
from importlib import import_module
from runpy import run_module

import pytest

import tested_transformer
from tested_transformer.checkpoints.shipping import ship_model
from tested_transformer.gpt import GPT, GPTConfig


def test_every_name_listed_is_there_and_is_its_modules_own():
    homes = tested_transformer._HOMES
    listed = sorted(name for names in homes.values() for name in names)
    assert listed == sorted(tested_transformer.__all__)
    for module, names in homes.items():
        home = import_module(f"tested_transformer.{module}")
        for name in names:
            assert name in home.__all__
            assert getattr(tested_transformer, name) is getattr(home, name)
    assert {*tested_transformer.__all__} <= {*dir(tested_transformer)}


def test_importing_it_imports_no_more_than_is_asked_for():
    code = (
        "import sys, tested_transformer\n"
        "assert 'torch' not in sys.modules\n"
        "from tested_transformer import causal_mask\n"
        "loaded = {n for n in sys.modules if n.startswith('tested_transformer.')}\n"
        "assert loaded == {f'tested_transformer.{n}' for n in ('masks', 'inspection')}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_loading_a_model_and_writing_with_it_import_no_compiler(tmp_path):
    config = GPTConfig(vocab_size=9, d_model=8, num_heads=2, num_layers=1)
    ship_model(tmp_path, GPT(config))
    code = (
        "import sys\n"
        "from torch import tensor\n"
        "from tested_transformer.checkpoints.shipping import load_shipped\n"
        "from tested_transformer.decoding import generate\n"
        f"model = load_shipped({str(tmp_path)!r}).model\n"
        "assert len(generate(model, tensor([[1]]), max_new_tokens=2)[0]) == 2\n"
        "assert not {'torch._dynamo', 'sympy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_that_never_were_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = tested_transformer.Transformer


def test_the_command_runs_as_a_module(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["tested-transformer", "--version"])
    with pytest.raises(SystemExit, match="0"):
        run_module("tested_transformer", run_name="__main__")
    output = capsys.readouterr()
    assert output.out.startswith("tested-transformer ")
    assert output.err == ""
