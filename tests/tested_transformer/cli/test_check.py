"""An attention in a file is imported, made and checked."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("as_a_caller")

FILE = """
import torch.nn.functional as F
from dataclasses import dataclass
from torch import nn
from beside import CAUSAL

@dataclass
class Unused:
    size: "int" = 3

class Attention(nn.Module):
    def __init__(self, config, layer: int = 0, *, causal=True):
        super().__init__()
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.causal, self.layer = config.n_head, causal and CAUSAL, layer
        self.is_causal = True

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).flatten(2))

class Line(nn.Linear):
    pass

def attend(query, key, value, attn_mask=None, is_causal=False):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal
    )

def four(a, b, c, d):
    return a

def narrow(q, k, v, mask=None, causal=False):
    return q[..., 1:]

nothing = 3
"""
WITH = ("--with", "n_embd=20", "n_head=5", "bias=False")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "beside.py").write_text("CAUSAL = True")
    path = folder / "their_model.py"
    path.write_text(FILE)
    return path


def test_a_layer_that_takes_a_config_is_made_and_is_right(
    file: Path, command: Command
) -> None:
    paths = [*sys.path]
    ended = command("check", f"{file}:Attention", *WITH)
    assert ended.status == 0
    assert ended.out.startswith("Attention is right.\n")
    assert ended.err == f"Importing {file}, which runs the code in it.\n"
    assert sys.path == paths
    ended = command("check", f"{file}:Attention", *WITH, "layer=2", "--json")
    assert json.loads(ended.out)["state"] == "right"


def test_a_mistake_and_what_is_not_known_have_a_status_of_their_own(
    file: Path, command: Command
) -> None:
    ended = command("check", f"{file}:Attention", *WITH, "causal=false")
    assert ended.status == 1
    first = ended.out.splitlines()[0]
    assert first == "Attention is WRONG: the causal mask is not applied."
    line = ("--with", "in_features=20", "out_features=20")
    ended = command("check", f"{file}:Line", *line)
    assert (ended.status, ended.out.splitlines()[0]) == (
        3,
        "Line is not known to be right:",
    )


def test_a_function_of_a_module_is_checked_as_it_is(
    file: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    ended = command("check", "their_model:attend", "--skip", "dtypes,modes")
    assert ended.status == 0
    assert "dtypes" not in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name an attention, such as model.py:CausalSelfAttention"),
        (
            ("their_model.py",),
            "name an attention, such as model.py:CausalSelfAttention",
        ),
        (("nowhere.py:Attention",), "nowhere.py: no such file"),
        (("x.py:A", "--with", "a"), "argument --with: 'a' is not NAME=VALUE; see"),
    ],
)
def test_what_is_not_said_rightly_is_refused(
    words: tuple[str, ...], message: str, refused: Callable[..., str]
) -> None:
    assert refused("check", *words).startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((":Nothing",), " has no class or function Nothing"),
        ((":nothing",), " has no class or function nothing"),
        ((":attend", *WITH), "attend is not a class, so --with does not apply"),
        (
            (":Attention", "--with", "n_embd=20"),
            "no attribute 'bias'; pass what it needs",
        ),
        ((":Attention",), "Attention cannot be made: TypeError: "),
        (
            (":Attention", "--with", "n_embd=20,n_head=5"),
            "to --with, with spaces between settings, not commas",
        ),
        ((":Attention", *WITH, "--style", "odd"), "style='odd' must be one of ours"),
    ],
)
def test_what_cannot_be_made_is_one_line(
    file: Path, words: tuple[str, ...], message: str, command: Command
) -> None:
    ended = command("check", f"{file}{words[0]}", *words[1:])
    _, line = ended.err.splitlines()
    assert (ended.status, ended.out) == (2, "")
    assert line.startswith("tested-transformer: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("name", "message"),
    [("four", "cannot infer how to call four"), ("narrow", "the function gives (")],
    ids=["TypeError", "ValueError"],
)
def test_what_cannot_be_called_is_one_line_and_is_not_called_wrong(
    file: Path, name: str, message: str, command: Command
) -> None:
    ended = command("check", f"{file}:{name}")
    _, line = ended.err.splitlines()
    assert (ended.status, ended.out) == (3, "")
    assert line.startswith(f"tested-transformer: error: {message}")


def test_a_file_that_fails_says_how(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("1 / 0")
    ended = command("check", "broken.py:Attention")
    assert ended.status == 2
    assert "error: broken.py: ZeroDivisionError: division by zero" in ended.err


def test_a_file_that_ends_python_says_why(command: Command) -> None:
    Path("program.py").write_text("import sys; sys.exit(3)")
    ended = command("check", "program.py:Attention")
    assert ended.status == 2
    assert "error: program.py ends Python when it is imported" in ended.err
