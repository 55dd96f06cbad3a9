import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import pytest

from tested_transformer.cli.command import COMMANDS, make_parser
from tested_transformer.cli.flags import Flags, add_flags, arguments_for, check_at_least
from tested_transformer.gpt import GPTConfig
from tested_transformer.training import Recipe

WORDS = ("one", "two")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of each kind.

    Args:
        d_model: The width. More of it is not shown.
        rate: Half of 3 %, or ``None``
            for ``d_model``.
        word: One of ``WORDS``.
        some: Several.
        pair: Two.
        row: Some, or none.
        many: One or some.
        switches: Yes or no, for each.
        on: Whether it is.
        kind: Which.
    """

    d_model: int = 7
    rate: float | None = None
    word: str = "one"
    some: list[str] | None = None
    pair: tuple[float, float] = (0.5, 2.0)
    row: tuple[int | None, ...] | None = None
    many: Sequence[int | None] | int | None = None
    switches: Sequence[bool] | None = None
    on: bool = False
    kind: Literal["a", "b"] = "a"
    unknown: dict[str, int] | None = None


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(prog="p")
    add_flags(made, Flags("settings", Settings, [{}, {"on": True}]))
    return made


def test_what_was_typed_is_told_from_what_was_not(parser):
    words = "--d-model 3 --rate none --some x --some y --pair 1,3 --no-on --kind b"
    words += " --row 5,none --many 3,none --switches yes,no"
    for typed, values in (
        ("", {}),
        (
            words,
            {"d_model": 3, "rate": None, "some": ["x", "y"], "pair": (1.0, 3.0)}
            | {"row": (5, None), "many": (3, None), "switches": (True, False)}
            | {"on": False, "kind": "b"},
        ),
        ("--many 5", {"many": 5}),
        ("--many none", {"many": None}),
        ("--row 5", {"row": (5,)}),
    ):
        assert arguments_for(parser.parse_args(typed.split()), Settings) == values


def test_help_is_the_docstring_and_the_defaults(parser):
    shown = " ".join(parser.format_help().split())
    for line in (
        "--d-model N The width (7)",
        "--rate X Half of 3 %, or none for d_model --word",
        "--word NAME One of one, two (one)",
        "--pair X,X Two (0.5,2)",
        "--row N,... Some, or none",
        "--switches yes|no,... Yes or no, for each",
        "--on, --no-on Whether it is (no or yes)",
        "--kind {a,b} Which (a)",
    ):
        assert line in shown
    assert "unknown" not in shown


def test_what_cannot_be_read_is_refused(parser, capsys):
    for words, message in (
        ("--d-model none", "--d-model: invalid int value: 'none'"),
        ("--rate many", "--rate: invalid float value: 'many'"),
        ("--pair 1;3", "--pair: invalid float value: '1;3'"),
        ("--switches yes,maybe", "--switches: 'maybe' is not yes or no"),
        ("--kind c", "--kind: invalid choice: 'c'"),
    ):
        with pytest.raises(SystemExit):
            parser.parse_args(words.split())
        assert message in capsys.readouterr().err


def test_numbers_that_are_too_small_are_named():
    check_at_least(1, first=None, second=1)
    with pytest.raises(ValueError, match=r"^third=0 must be at least 1$"):
        check_at_least(1, second=1, third=0)


PARSERS = make_parser()._subparsers._group_actions[0].choices


def test_every_setting_of_a_model_and_a_recipe_has_a_flag():
    """All but those known from the text, and what pruning leaves."""
    shown = f" {PARSERS['train'].format_help()}".replace(",", " ")
    names = [each.name for source in (GPTConfig, Recipe) for each in fields(source)]
    flags = {"--" + name.replace("_", "-") for name in names}
    assert {flag for flag in flags if f"  {flag} " not in shown} == {"--kept-heads"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_each_flag_and_has_examples_that_can_be_read(name, command):
    ended = command(name, "--help")
    assert (ended.status, ended.err) == (0, "")
    usage, about, *_ = ended.out.split("\n\n")
    assert re.fullmatch(rf"usage: tested-transformer {name}( \[\w+\])+", usage)
    assert " ".join(about.split()) == COMMANDS[name][0].__doc__.partition("\n")[0]
    for action in PARSERS[name]._actions:
        assert action.help, action.option_strings
        assert "``" not in action.help
        assert "factory" not in action.help
    _, _, examples = ended.out.partition("\nExamples:\n")
    lines = re.findall(r"^  tested-transformer (.+?)(?:  |$)", examples, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        assert make_parser().parse_args(shlex.split(line)).command == name
