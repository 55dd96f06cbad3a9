"""An attention in a file is imported, made and checked, with an adapter if need be."""

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("as_a_caller")

# A dataclass looks for its module, if its annotations are text.
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

    def forward(self, x):
        parts = self.qkv(x).unflatten(-1, (3, self.n_head, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).flatten(2))

attend = F.scaled_dot_product_attention
def swapped(keys, queries, values): return attend(queries, keys, values)
def four(a, b, c, d): return attend(a, b, c)
def narrow(q, k, v, mask=None, causal=False): return q[..., 1:]
nothing = 3
"""
ADAPTER = """
def adapter(layer):
    return dict(call=lambda f, q, k, v: f(q, k, v, None), causal=False)
"""
WITH = ("--with", "n_embd=20", "n_head=5", "bias=False")
CALL = "lambda f, q, k, v: f(k, q, v)"


@pytest.fixture
def file(tmp_path, monkeypatch):
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "beside.py").write_text("CAUSAL = True")
    path = folder / "their_model.py"
    path.write_text(FILE)
    (folder / "broken.py").write_text("1 / 0")
    (folder / "program.py").write_text("import sys; sys.exit(3)")
    monkeypatch.chdir(folder)
    return path


def test_a_layer_that_takes_a_config_is_made_and_is_right(file, command):
    ended = command("check", f"{file}:Attention", *WITH)
    assert ended.status == 0
    assert ended.out.startswith("Attention is right: causal; whole, gradients, ")
    assert ended.err == f"Importing {file}, which runs the code in it.\n"
    assert str(file.parent) not in sys.path
    words = ("layer=2", "--json", "--skip", "modes,output", "--lengths", "5")
    report = command("check", f"{file}:Attention", *WITH, *words).json
    assert report["state"] == "cannot tell"
    assert report["checks"]["modes"] == {"passed": None, "reason": "skipped"}


def test_what_is_meant_can_be_said(file, command):
    both = ("check", "their_model.py:Attention", *WITH, "causal=false")
    ended = command(*both, "--both")
    assert ended.out.startswith("Attention is right: both sides; ")
    ended = command(*both, "--causal")
    assert (ended.status, ended.out[:26]) == (1, "Attention is WRONG: leak: ")
    assert "no-causal-mask: The causal mask is not applied." in ended.out
    like = "Reference(**packed(layer.qkv, num_heads=layer.n_head), causal=False)"
    ended = command(*both, "--like", like)  # which leaves out the last projection
    assert ended.out.startswith("Attention is WRONG: output: both sides: ")


def test_lengths_pieces_and_the_width_can_be_said(file, command):
    words = ("check", f"{file}:Attention", *WITH)
    ended = command(*words, "--lengths", "5,11")
    assert "with sequences of 5 and 11 tokens" in ended.out
    ended = command(*words, "--pieces", "lambda layer, parts: [*map(layer, parts)]")
    assert "as in chapters/the-bug-museum/#old-keys-lost" in ended.out
    ended = command(*words, "--d-model", "10")
    assert ended.out.startswith("Attention: cannot tell, since called in the usual way")


def test_a_function_of_a_module_is_checked_as_it_is(file, command):
    assert command("check", "their_model:attend").status == 0
    ended = command("check", "their_model:swapped", "--both", "--call", CALL)
    assert ended.out.startswith("swapped is right: both sides; ")
    ended = command("check", "their_model:narrow")  # cannot be called, is not wrong
    assert ended.status == 3
    message = (
        "narrow: cannot tell, since called in the usual way it fails (narrow cannot"
    )
    assert ended.out.startswith(message)


def test_the_librarys_own_layers_are_known(command):
    name = "tested_transformer:MultiHeadAttention"
    ended = command("check", name, "--with", "d_model=12", "num_heads=3")
    assert "in pieces" in ended.out.splitlines()[0]


def test_an_adapter_is_written_completed_and_read(file, command):
    words = ("check", "their_model.py:four")
    ended = command(*words)
    assert (ended.status, ended.out[:31]) == (3, "four: cannot tell, since how it")
    adapter = Path("their_model_four_adapter.py")
    assert f"Wrote {adapter}: complete it, and check again.\n" in ended.err
    text = adapter.read_text()
    ended = command(*words)
    assert re.search(r"line \d+: complete a=...\n", ended.err)
    assert adapter.read_text() == text
    adapter.write_text(ADAPTER)
    ended = command(*words, "--json")
    assert (ended.status, ended.json["state"]) == (0, "right")
    for text, message in (
        ("", "other.py has no function adapter"),
        ("adapter = len", "other.py: TypeError: object of type 'function' has no len"),
    ):
        Path("other.py").write_text(text)
        assert message in command(*words, "--adapter", "other.py").err


def test_what_is_mistaken_is_one_line(file, refused, command):
    example = "name an attention, such as model.py:CausalSelfAttention"
    for words, message in (
        ((), example),
        (("model.py",), example),
        (("nowhere.py:Attention",), "nowhere.py: no such file"),
        (("x.py:A", "--with", "a"), "argument --with: 'a' is not NAME=VALUE; see"),
        (("x.py:A", "--skip", "all"), "skip='all' must be one of leak, prefix, "),
        (("x.py:A", "--causal", "--both"), "causal and both exclude each other"),
    ):
        assert refused("check", *words).startswith(message)
    ours = "their_model.py"
    for target, words, message in (
        ("broken.py:A", (), "broken.py: ZeroDivisionError: division by zero"),
        ("program.py:A", (), "program.py ends Python when it is imported"),
        (f"{ours}:nothing", (), f"{ours} has no class or function nothing"),
        (f"{ours}:attend", WITH, "attend is not a class, so --with does not apply"),
        (f"{ours}:Attention", WITH[:2], ".*no attribute 'bias'; pass what it needs"),
        (f"{ours}:Attention", (), "Attention cannot be made: TypeError: "),
        (f"{ours}:Attention", ("--with", "n=20,m=5"), ".*spaces between settings, not"),
        (f"{ours}:attend", ("--call", "lambda"), "--call 'lambda': SyntaxError: "),
        (
            f"{ours}:attend",
            ("--like", "what"),
            "--like 'what': NameError: name 'what' ",
        ),
        (f"{ours}:attend", ("--adapter", "no.py"), "no.py: no such file"),
    ):
        ended = command("check", target, *words)
        _, line = ended.err.splitlines()
        assert (ended.status, ended.out) == (2, "")
        assert re.match(f"tested-transformer: error: {message}", line), line
