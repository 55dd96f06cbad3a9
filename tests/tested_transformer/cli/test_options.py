import argparse
from inspect import signature

import pytest

from tested_transformer.cli.options import (
    MODEL,
    SAMPLING,
    TRAINING,
    Option,
    add_options,
    given,
    in_words_of,
)
from tested_transformer.generation import stream
from tested_transformer.gpt import GPTConfig
from tested_transformer.training import Recipe

OPTIONS = (
    Option("--width", "d_model", int, "features"),
    Option("--drop", "dropout", float, "forget (nothing)"),
    Option("--norm", "norm", ("layer", "rms"), "scale"),
    Option("--bias", "bias", bool, "add"),
    Option("--other", "other", str, "unknown to the library"),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="p")
    one = GPTConfig(vocab_size=2, d_model=8, norm="rms")
    add_options(made, "model", OPTIONS, GPTConfig(vocab_size=2), one)
    return made


def test_what_was_typed_is_told_from_what_was_not() -> None:
    assert given(parser().parse_args([]), OPTIONS) == {}
    words = ["--no-bias", "--width", "7", "--drop", "0"]
    typed = given(parser().parse_args(words), OPTIONS)
    assert typed == {"d_model": 7, "dropout": 0.0, "bias": False}


def test_defaults_are_shown_once_each_and_only_where_the_text_has_none() -> None:
    shown = " ".join(parser().format_help().split())
    assert "features (128 or 8)" in shown
    assert "forget (nothing)" in shown
    assert "scale (layer or rms)" in shown
    assert "add (yes)" in shown
    assert shown.endswith("unknown to the library")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("d_model=65 must be", "--width 65 must be"),
        ("saved with config.d_model=4, not 3", "saved with --width 4, not 3"),
        ("recipe.lr=0.1, not 0.2", "--lr 0.1, not 0.2"),
        ("try lr=0.1 and muon_lr=0.2", "try --lr 0.1 and --muon-lr 0.2"),
        ("muon_lr2=1 and text.lr=1 stay", "muon_lr2=1 and text.lr=1 stay"),
    ],
)
def test_errors_are_told_in_the_words_of_the_command(message: str, told: str) -> None:
    flags = {"d_model": "--width", "lr": "--lr", "muon_lr": "--muon-lr"}
    assert in_words_of(flags, message) == told


def test_options_have_the_names_that_the_library_has() -> None:
    config, recipe = GPTConfig(vocab_size=2), Recipe()
    assert [each.flag for each in MODEL if not hasattr(config, each.name)] == []
    assert [each.flag for each in TRAINING if not hasattr(recipe, each.name)] == []
    for option in (*MODEL, *TRAINING):
        value = getattr(config, option.name, getattr(recipe, option.name, None))
        kind = option.kind if isinstance(option.kind, type) else str
        assert value is None or type(value) is kind, option.flag
    taken = signature(stream).parameters
    ours = {"samples"}
    assert [x.flag for x in SAMPLING if x.name not in {*taken, *ours}] == []
