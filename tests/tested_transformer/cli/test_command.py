import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tested_transformer import __version__
from tested_transformer.cli import (
    command as module,
    evaluate,
    generate,
    heads,
    info,
    train,
)
from tested_transformer.cli.options import (
    DEVICE,
    MODEL,
    OUTPUT,
    SAMPLING,
    TEXT,
    TRAINING,
)
from tested_transformer.training import Recipe

Command = Callable[..., Any]


def test_without_a_command_there_is_help(command: Command) -> None:
    ended = command()
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        "tested-transformer: error: the following arguments are required: COMMAND; "
        "see tested-transformer --help\n"
    )
    ended = command("--help")
    assert (ended.status, ended.err) == (0, "")
    for name in ("train", "generate", "evaluate", "heads", "info"):
        assert re.search(rf"^    {name} +\w", ended.out, re.MULTILINE)
    assert command("--version").out == (f"tested-transformer {__version__}\n")


@pytest.mark.parametrize(
    ("name", "options", "examples"),
    [
        ("train", (TEXT, MODEL, TRAINING, DEVICE, OUTPUT), train.EXAMPLES),
        ("generate", (SAMPLING, DEVICE), generate.EXAMPLES),
        ("evaluate", (evaluate.OPTIONS, DEVICE), evaluate.EXAMPLES),
        ("heads", (heads.OPTIONS, DEVICE), heads.EXAMPLES),
        ("info", (), info.EXAMPLES),
    ],
)
def test_help_teaches_every_option_and_examples_that_can_be_read(
    name: str, options: tuple, examples: str, command: Command
) -> None:
    ended = command(name, "--help")
    assert (ended.status, ended.err) == (0, "")
    assert examples in ended.out
    assert "\nnext:\n" in ended.out
    flags = [option.flag for group in options for option in group]
    if name == "train":
        flags += ["--recipe", "--resume", "--overwrite", "--shard"]
    for flag in [*flags, "--json", "--traceback"]:
        assert re.search(rf"^  {flag}[, ].", ended.out, re.MULTILINE), flag
    parser = module._parser()
    shown = re.findall(r"^  tested-transformer (.*?)(?:  .*)?$", examples, re.M)
    assert len(shown) >= 3
    for words in shown:
        parser.parse_args(shlex.split(words))


def test_defaults_are_shown(command: Command) -> None:
    shown = " ".join(command("train", "--help").out.split())
    fast, plain = Recipe.fast(), Recipe.plain()
    for text in (
        "heads of attention in each block (4)",
        "sees at once (64)",
        f"the weights are changed ({fast.steps} or {plain.steps})",
        "add biases (no or yes)",
        f"AdamW's learning rate, where no other is given ({fast.lr:g} or {plain.lr:g})",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "argument COMMAND: invalid choice: 'trian' (choose from "),
        ("train --steps many", "argument --steps: invalid int value: 'many'; see tes"),
        ("train --norm none", "argument --norm: invalid choice: 'none' (choose from "),
        ("train --step 3", "unrecognized arguments: --step; see tested-transformer"),
    ],
)
def test_a_slip_of_the_pen_is_one_line(
    words: str, message: str, command: Command
) -> None:
    ended = command(*words.split())
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"tested-transformer: error: {message}")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (OSError(28, "No space left on device", "runs/a"), 2, "runs/a: no space left "),
        (PermissionError(13, "Permission denied"), 2, "permission denied"),
        (ImportError("install it"), 2, "install it"),
        (ValueError("two\n  lines"), 2, "two lines"),
        (torch.OutOfMemoryError("CUDA out"), 2, "the device has too little memory: tr"),
    ],
)
def test_errors_are_one_line(
    error: Exception,
    status: int,
    message: str,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(info, "run", fail)
    ended = command("info")
    assert (ended.status, ended.out) == (status, "")
    assert ended.err.startswith(f"tested-transformer: error: {message}")
    assert ended.err.count("\n") == 1
    with pytest.raises(type(error)):
        command("info", "--traceback")


def test_a_mistake_of_ours_is_not_hidden(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "_of_machine", lambda: {}["nothing"])
    with pytest.raises(KeyError):
        command("info")


def test_nobody_left_to_read_is_no_error(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(info, "run", write)
    assert command("info") == (141, "", "")


def test_a_disk_that_is_full_leaves_no_run(
    text: Path, tiny: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(train.CheckpointWriter, "save", full)
    ended = command("train", str(text), *tiny, "--out", "full")
    assert (ended.status, ended.err) == (
        2,
        "tested-transformer: error: no space left on device\n",
    )
    monkeypatch.undo()


# As it is used: in a process of its own.


@pytest.mark.slow
def test_in_a_shell_bad_input_is_one_line_and_status_2(python: list[str]) -> None:
    done = subprocess.run(
        [*python, "generate", "nowhere"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tested-transformer: error: nowhere holds no checkpoint: there is no "
        "checkpoint.json\n"
    )


@pytest.mark.slow
def test_in_a_shell_a_pipe_may_close(python: list[str], trained: Path) -> None:
    words = [*python, "generate", "--tokens", "100000", "--seed", "1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.slow
def test_in_a_shell_ctrl_c_saves_and_says_how_to_go_on(
    python: list[str], text: Path, tiny: list[str], command: Command
) -> None:
    words = ["train", str(text), *tiny, "--steps", "100000", "--threads", "1"]
    with subprocess.Popen(
        [*python, *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = [json.loads(process.stdout.readline()) for _ in range(5)]
        process.send_signal(signal.SIGINT)
        told += [json.loads(line) for line in process.stdout]
        assert process.wait() == 130
        said = process.stderr.read()
    assert said == "\nfinishing the step, then saving; once more to leave at once\n"
    end = told[-1]
    assert (end["event"], end["status"]) == ("end", "stopped")
    assert end["step"] == end["saved_step"] == told[-2]["step"]
    saved = json.loads(command("info", "runs/play", "--json").out)
    assert saved["step"] == end["step"]
