"""``tested-transformer``: five commands, and how all of them end.

Status 0 is success, 1 a run that diverged or a loss that is not honest, 2 whatever
the command was given that does not fit, 130 and 143 a run that was stopped by Ctrl-C
or SIGTERM, and 141 nobody left to read what is printed.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import torch

from tested_transformer import __version__
from tested_transformer.cli.evaluate import add_evaluate
from tested_transformer.cli.generate import add_generate
from tested_transformer.cli.heads import add_heads
from tested_transformer.cli.info import add_info
from tested_transformer.cli.options import in_words_of
from tested_transformer.cli.train import add_train
from tested_transformer.training import TrainingDivergedError

__all__ = ["main"]

NAME = "tested-transformer"
EXAMPLES = """\
begin with:
  tested-transformer train        a small GPT learns a text, in about a minute
  tested-transformer generate     and writes
  tested-transformer COMMAND --help
"""
# What options set that has another name in the library.
_OTHER_FLAGS = {
    "recipe_name": "--recipe",
    "seq_len": "--context",
    "text.limit": "--characters",
    "tokenizer.kind": "--tokenizer",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{NAME}: error: {message}; see {self.prog} --help\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status.

    Args:
        words: What was typed after the name; that of this process by default.
    """
    words = sys.argv[1:] if words is None else [*words]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a letter shows its number instead.
            stream.reconfigure(errors="backslashreplace")
    arguments = _parser().parse_args(words)
    arguments.words = words
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print(f"\n{NAME}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _read_by_nobody()
        return 141
    except TrainingDivergedError as error:
        return _end(1, _told(error, arguments))
    except (ValueError, OSError, ImportError, torch.OutOfMemoryError) as error:
        if arguments.traceback:
            raise
        return _end(2, _told(error, arguments))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=NAME,
        description="Train a small GPT on any text, and let it write.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for add in (add_train, add_generate, add_evaluate, add_heads, add_info):
        command = add(commands)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.allow_abbrev = False
        group = command.add_argument_group("for programs and for repair")
        group.add_argument(
            "--json", action="store_true", help="one JSON object a line, nothing else"
        )
        group.add_argument(
            "--traceback", action="store_true", help="show where an error comes from"
        )
        flags = _OTHER_FLAGS | {
            action.dest: action.option_strings[0]
            for action in command._actions
            if action.option_strings
        }
        command.set_defaults(flags=flags)
    return parser


def _told(error: BaseException, arguments: argparse.Namespace) -> str:
    """Tell an error in one line, in the words of the command."""
    if isinstance(error, torch.OutOfMemoryError):
        return (
            "the device has too little memory: try --device cpu, and in training "
            "--accumulate 2, 4 or more"
        )
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror[0].lower() + error.strerror[1:]
        if error.filename is not None:
            message = f"{error.filename}: {message}"
    message = "; ".join([message, *getattr(error, "__notes__", [])])
    return in_words_of(arguments.flags, " ".join(message.split()))


def _end(status: int, message: str) -> int:
    rank = os.environ.get("RANK", "0")
    where = "" if rank == "0" else f"process {rank}: "
    print(f"{NAME}: error: {where}{message}", file=sys.stderr)
    return status


def _read_by_nobody() -> None:
    """Keep Python from writing the rest, and complaining that it cannot."""
    with suppress(OSError, ValueError):  # It may be no file at all, as in a test.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
