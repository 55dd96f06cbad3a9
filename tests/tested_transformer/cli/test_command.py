import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import torch

from tested_transformer import __version__
from tested_transformer.cli import info, main


def test_without_a_command_there_is_help(command):
    ended = command()
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.endswith("required: COMMAND; see tested-transformer --help\n")
    ended = command("--help")
    assert (ended.status, ended.err) == (0, "")
    for name in ("train", "generate", "evaluate", "heads", "check", "info"):
        assert re.search(rf"^    {name} +\w\w+ ", ended.out, re.MULTILINE)
    assert command("--version").out == (f"tested-transformer {__version__}\n")


def test_a_slip_of_the_pen_is_one_line(refused):
    for words, message in (
        ("trian", "argument COMMAND: invalid choice: 'trian' (choose from "),
        ("train --steps many", "argument --steps: invalid int value: 'many'; see tes"),
        ("train --step 3", "unrecognized arguments: --step; see tested-transformer tr"),
        ("train --n_embd=64", "unrecognized arguments: --n_embd=64 (here: --d-model"),
    ):
        assert refused(*words.split()).startswith(message)


def test_errors_are_one_line(command, monkeypatch):
    for error, message in (
        (OSError(28, "No space left on device", "runs/a"), "runs/a: no space left on "),
        (PermissionError(13, "Permission denied"), "permission denied"),
        (ImportError("install it"), "install it"),
        (ValueError("two\n  lines"), "two lines"),
        (torch.OutOfMemoryError("CUDA out"), "the device has too little memory: tr"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "the device has "),
    ):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(info.Info, "run", fail)
        ended = command("info")
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith(f"tested-transformer: error: {message}")
        assert ended.err.count("\n") == 1
        with pytest.raises(type(error)):
            command("info", "--traceback")


def test_a_mistake_of_ours_is_not_hidden(command, monkeypatch):
    monkeypatch.setattr(info.Info, "run", lambda *_: {}["nothing"])
    with pytest.raises(KeyError):
        command("info")


def test_text_is_utf8_in_files_whatever_the_console_has(command, monkeypatch):
    """A console of Windows in code page 1252 has no Greek."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    monkeypatch.setattr(info.Info, "run", lambda *_: print("\u03b1\ud800") or 0)
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    assert main(["info"]) == 0
    assert raw.getvalue() == b"\xce\xb1\\ud800" + os.linesep.encode()
    raw = io.BytesIO()
    console = io.TextIOWrapper(raw, encoding="cp1252", newline="\n")
    console.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", console)
    assert main(["info"]) == 0
    assert raw.getvalue() == b"\\u03b1\\ud800\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end in another way there")
def test_a_pipe_that_nobody_reads_is_no_error(trained, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        assert main(["generate", "--max-new-tokens", "9", "--seed", "1"]) == 141
        unread.flush()  # as Python does at its end
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no process can send Ctrl-C there")
def test_in_a_shell_ctrl_c_saves_and_says_how_to_go_on(text, tiny, command):
    words = ["train", str(text), *tiny, "--steps", "100000", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "tested_transformer", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        report = [json.loads(process.stdout.readline()) for _ in range(5)]
        process.send_signal(signal.SIGINT)
        report += [json.loads(line) for line in process.stdout]
        assert process.wait() == 130
        message = process.stderr.read()
    assert "finishing the step, then saving" in message
    end = report[-1]
    assert (end["event"], end["status"]) == ("end", "stopped")
    assert end["step"] == end["saved_step"] == report[-2]["step"]
    saved = command("info", "runs/play", "--json").json
    assert saved["step"] == end["step"]


def test_an_output_that_is_closed_is_no_error(trained, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["generate", "--max-new-tokens", "2", "--seed", "1"]) == 0
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["generate", "nothing"]) == 2
    for stream in (sys.stdout, sys.stderr):
        stream.close()


def test_an_error_that_nobody_reads_keeps_its_status(monkeypatch):
    def closed(text):
        raise BrokenPipeError

    unread = io.StringIO()
    unread.write = closed
    monkeypatch.setattr(sys, "stderr", unread)
    assert main(["generate", "nothing"]) == 2
