"""The names that the package itself offers, and the names from before 0.2."""

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import tested_transformer
from tested_transformer import _moved


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
        "assert loaded == {'tested_transformer._moved', 'tested_transformer.masks'}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("blocks", "DecoderBlock", "gpt"),
        ("blocks", "FeedForward", "layers"),
        ("museum", "check_attention", "checking"),
        ("museum", "kill_matrix", "book.museum"),
        ("text", "load_corpus", "data"),
        ("heads", "record_heads", "interpret"),
        ("plots", "head_maps", "book.plots"),
    ],
)
def test_a_name_that_moved_still_imports_and_says_where_it_went(old, name, new):
    module = import_module(f"tested_transformer.{old}")
    new_home = f"tested_transformer.{new}"
    told = f"tested_transformer.{old}.{name} is now {new_home}.{name}"
    with pytest.warns(FutureWarning, match=f"^{told}$"):
        found = getattr(module, name)
    assert found is getattr(import_module(new_home), name)


def test_every_home_of_what_moved_is_there():
    for homes in _moved._MODULES.values():
        for home in homes:
            assert import_module(f"tested_transformer.{home}").__all__


def test_a_name_that_changed_says_the_new_one():
    told = "scaled_dot_product_attention is now .*attention_with_weights"
    for module in (tested_transformer, import_module("tested_transformer.attention")):
        with pytest.warns(FutureWarning, match=told):
            found = module.scaled_dot_product_attention
        assert found is tested_transformer.attention_with_weights


def test_names_that_never_were_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = tested_transformer.Transformer
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = import_module("tested_transformer.attention").Transformer
    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = import_module("tested_transformer.blocks").Transformer
    with warnings.catch_warnings(), pytest.raises(ModuleNotFoundError):
        import_module("tested_transformer.transformers")


def test_the_command_runs_as_a_module_and_says_where_it_went() -> None:
    for module, told in (("", ""), (".cli", "is now python -m tested_transformer")):
        done = subprocess.run(
            [sys.executable, "-m", f"tested_transformer{module}", "--version"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("tested-transformer ")
        assert told in done.stderr
        assert bool(done.stderr) == bool(told)
