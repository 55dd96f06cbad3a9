"""A text, a model that learns it in milliseconds, and the command in this process."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tested_transformer.cli import main

PLAY = "\nto be, or not to be: that is the question.\n" * 11
# Two blocks of three heads, twelve features, contexts of seven: nothing equals another.
TINY = [
    *("--num-layers", "2", "--num-heads", "3", "--d-model", "12", "--max-seq-len", "7"),
    *("--batch-size", "5", "--sample", "4", "--steps", "6", "--evaluate-every", "3"),
    # What is left out would depend on the processor.
    *("--precision", "fp32"),
]


class Ended(NamedTuple):
    """What a command did: its status, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.events if event["event"] == "step"]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch, tmp_path):
    """Work in an empty folder, alone, and in plain lines."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def command(capsys):
    def run(*words):
        capsys.readouterr()
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return Ended(status, out, err)

    return run


@pytest.fixture
def refused(command):
    """Run a command that has to fail with status 2 and one line; return the line."""

    def run(*words):
        ended = command(*words)
        assert (ended.status, ended.out) == (2, "")
        (line,) = ended.err.splitlines()
        assert line.startswith("tested-transformer: error: ")
        return line.removeprefix("tested-transformer: error: ")

    return run


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text(PLAY)
    return path


@pytest.fixture
def train(text, command):
    """Train a tiny model on the text."""
    return partial(command, "train", str(text), *TINY)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once")
    (folder / "play.txt").write_text(PLAY)
    out = folder / "run"
    words = ["train", str(folder / "play.txt"), *TINY, "--threads", "1"]
    assert main([*words, "--out", str(out)]) == 0
    return out


@pytest.fixture
def trained(trained_once):
    """Return the folder of a run that has ended."""
    folder = Path("runs/play")
    shutil.copytree(trained_once, folder)
    return folder


@pytest.fixture
def trained_here(train):
    """Return the same, for those who need its text where ``text`` is."""
    ended = train()
    assert (ended.status, ended.err) == (0, "")
    return Path("runs/play")


@pytest.fixture
def tiny():
    return [*TINY]
