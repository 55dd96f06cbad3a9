"""``tested-transformer``: eight commands, and their exit status.

The exit status is 0 for success, 1 for a run that diverged, a loss that is not honest
or attention that is wrong, 2 for bad input, 3 for attention of which that cannot be
told, 130 and 143 for a run stopped by Ctrl-C or SIGTERM, and 141 for a closed pipe.
"""

import argparse
import errno
import inspect
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch

from tested_transformer import __version__, training
from tested_transformer.cli.check import Check, RefusedError
from tested_transformer.cli.evaluate import Evaluate
from tested_transformer.cli.explain import Explain
from tested_transformer.cli.export import Export
from tested_transformer.cli.flags import Call, Flags, add_flags, arguments_for
from tested_transformer.cli.generate import SAMPLING, Generate
from tested_transformer.cli.heads import Heads
from tested_transformer.cli.info import Info
from tested_transformer.cli.train import ATTENTION, MODEL, TRAINING, Train
from tested_transformer.habits import (
    MODEL_SETTINGS,
    TRAINING_SETTINGS,
    WRITING_SETTINGS,
)

__all__ = ["main", "make_parser", "use_machine"]

NAME = "tested-transformer"
# A command is a dataclass: its fields are the flags, its docstring is the help.
COMMANDS: dict[str, tuple[Any, tuple[Flags, ...]]] = {
    "train": (Train, (*ATTENTION, MODEL, TRAINING)),
    "generate": (Generate, (SAMPLING,)),
    "evaluate": (Evaluate, ()),
    "heads": (Heads, ()),
    "export": (Export, ()),
    "check": (Check, ()),
    "explain": (Explain, ()),
    "info": (Info, ()),
}
EXAMPLES = """\
start with:
  tested-transformer train        train a small GPT, in a minute or two
  tested-transformer generate     write with it
  tested-transformer COMMAND --help
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{NAME}: error: {message}; see {self.prog} --help\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status.

    Args:
        words: The arguments after ``tested-transformer``; by default those of this
            process.
    """
    _set_encoding()
    words = [*(sys.argv[1:] if words is None else words)]
    parser = make_parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(arguments.command, unknown)
    kind, groups = COMMANDS[arguments.command]
    try:
        settings: dict[str, dict[str, Any]] = {}
        for title, source, _, leave_out in groups:
            settings.setdefault(title, {}).update(
                arguments_for(arguments, source, leave_out)
            )
        command = kind(**arguments_for(arguments, kind), **settings)
        device = use_machine(**arguments_for(arguments, use_machine))
        status = command.run(Call(device, arguments.json, words))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"\n{NAME}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _end_unread()
    except training.TrainingDivergedError as error:
        return _end(1, _one_line(error))
    except RefusedError as error:
        if arguments.traceback:
            raise
        return _end(3, _one_line(error))
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
        if os.name == "nt" and getattr(error, "errno", 0) == errno.EINVAL:
            return _end_unread()  # a closed pipe on Windows
        ours = isinstance(error, RuntimeError) and not _is_lack_of_memory(error)
        if arguments.traceback or ours:
            raise
        return _end(2, _one_line(error))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    raw = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    about = "Train a small GPT on any text, and let it write."
    parser = _Parser(
        prog=NAME, description=about, epilog=EXAMPLES, allow_abbrev=False, **raw
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, (kind, groups) in COMMANDS.items():
        about, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
        epilog = rest.partition("\nArgs:\n")[0]
        fields = inspect.signature(kind).parameters.values()
        takes = [f"[{x.name.upper()}]" for x in fields if x.kind is not x.KEYWORD_ONLY]
        usage = " ".join(["%(prog)s", *takes, "[options]"])
        short = about[0].lower() + about[1:-1]
        command = commands.add_parser(
            name,
            usage=usage,
            help=short,
            description=about,
            epilog=epilog,
            allow_abbrev=False,
            **raw,
        )
        for flags in (Flags("options", kind), *groups, Flags("machine", use_machine)):
            add_flags(command, flags)
        group = command.add_argument_group("for scripts and debugging")
        for flag, text in (
            ("--json", "Print one JSON object per line, nothing else"),
            ("--traceback", "Show the traceback of an error"),
        ):
            group.add_argument(flag, action="store_true", help=text)
    return parser


def _refuse(command: str, unknown: Sequence[str]) -> NoReturn:
    """End with what is unknown, and this command's flag for another library's."""
    kind, groups = COMMANDS[command]
    known = {*inspect.signature(kind).parameters}
    for group in groups:
        known |= inspect.signature(group.source).parameters.keys() - {*group.leave_out}
    others = {**MODEL_SETTINGS, **TRAINING_SETTINGS, **WRITING_SETTINGS}
    typed = [word.strip("-").partition("=")[0].replace("-", "_") for word in unknown]
    ours = [others[name] for name in typed if others.get(name) in known]
    flags = ", ".join(f"--{name}".replace("_", "-") for name in ours)
    message = f"unrecognized arguments: {' '.join(unknown)}"
    message += f" (here: {flags})" if flags else ""
    _Parser(prog=f"{NAME} {command}").error(message)


def use_machine(*, device: str = "auto", threads: int | None = None) -> torch.device:
    """Set the number of threads, and return the device.

    Args:
        device: Where to compute: cpu, cuda, cuda:1, mps, or auto for the best one.
        threads: CPU threads; PyTorch's choice by default.
    """
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads={threads} must be at least 1")
        torch.set_num_threads(threads)
    return training.choose_device(device)


def _set_encoding() -> None:
    """Write UTF-8 to files and pipes, and escape characters that a terminal lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, as by >&- in a shell
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w")))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            keep = stream.isatty() or "PYTHONIOENCODING" in os.environ
            encoding = stream.encoding if keep else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _is_lack_of_memory(error: BaseException) -> bool:
    kinds = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "allocate memory" in str(error)


def _one_line(error: BaseException) -> str:
    message = str(error)
    if _is_lack_of_memory(error):
        message = (
            "the device has too little memory: try --device cpu or a smaller model, "
            "and in training --accumulate 2, 4 or more"
        )
    elif isinstance(error, OSError) and error.strerror:
        message = error.strerror[0].lower() + error.strerror[1:]
        if error.filename is not None:
            message = f"{error.filename}: {message}"
    message = "; ".join([message, *getattr(error, "__notes__", [])])
    return " ".join(message.split())


def _end(status: int, message: str) -> int:
    rank = os.environ.get("RANK", "0")
    where = "" if rank == "0" else f"process {rank}: "
    with suppress(OSError):  # nobody may be there to read it
        print(f"{NAME}: error: {where}{message}", file=sys.stderr, flush=True)
    return status


def _end_unread() -> int:
    """Keep Python from flushing to the closed pipe and reporting an error."""
    with suppress(OSError, ValueError):  # in tests, stdout may not be a real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
