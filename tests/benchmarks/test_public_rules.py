"""Each rule puts the bug that it names into a small layer; what is none is left out."""

import ast
from pathlib import Path

import pytest
import torch
from benchmarks.public.bugs import draw_bugs, make_with
from benchmarks.public.modules import Module
from benchmarks.public.rules import RULES, rewritten

from tested_transformer.checking import CHECKS, check_attention
from tested_transformer.checking.exhibits import KNOWN

SOURCE = """
def rotate(x):
    return torch.cat((-x[..., 2:], x[..., :2]), dim=-1)

def apply_rotary(x, cos, sin):
    return x * cos + rotate(x) * sin

def attend(query, key, value, mask, dropout):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = dropout(F.softmax(scores, dim=-1))
    return weights @ value

class Layer(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        width = d_model // n_heads * n_kv_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, width)
        self.v_proj = nn.Linear(d_model, width)
        self.o_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)))

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.n_kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.n_kv_heads, -1).transpose(1, 2)
        copies = self.n_heads // self.n_kv_heads
        k = k.repeat_interleave(copies, dim=1)
        v = v.repeat_interleave(copies, dim=1)
        out = attend(q, k, v, self.mask[:T, :T], self.dropout)
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))
"""
MODULE = Module(
    repository="owner/name",
    commit="0" * 40,
    files={"layer.py": ("attend", "Layer")},
    make="Layer(24, 6, 2)",
    mask="causal",
    d_model=24,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a checkout of the small layer."""
    (tmp_path / "owner+name").mkdir()
    (tmp_path / "owner+name" / "layer.py").write_text(SOURCE)
    return tmp_path


def test_the_rules_name_exhibits_that_there_are() -> None:
    for rule in RULES.values():
        assert {*rule.exhibits} <= {*KNOWN}
        assert rule.mistake


@pytest.mark.nightly
def test_what_the_rules_make_of_the_layer_has_the_names_they_give(
    folder: Path,
) -> None:
    """The checker is the second way to say which bug it is."""
    named: set[str] = set()
    others = {*CHECKS} - {"leak", "output", "modes"}  # enough to ask for a name
    for bug in draw_bugs("small", MODULE, folder, count=99):
        layer = make_with(MODULE, folder, bug.trees)
        report = check_attention(layer, style="causal", skip=others)
        assert report.state == "wrong", bug.rule
        likely = {each.name for each in report.likely}
        assert not likely or likely & {*bug.rule.exhibits}, (bug.rule, likely)
        named |= {bug.rule.name} if likely else set()
    assert named >= {
        *("scale-dropped", "scale-inverted", "scaled-by-width", "diagonal-too-far"),
        *("fill-tiny", "fill-small", "scores-times-mask"),
        *("ones-added", "mask-after-softmax", "mask-inverted", "mask-dropped"),
        *("softmax-over-queries", "softmax-twice", "merge-without-transpose"),
        *("split-without-transpose", "both-tiled", "no-output-projection"),
        *("keys-for-values", "dropout-while-evaluating"),
    }


@pytest.mark.nightly
def test_ten_bugs_are_drawn_the_same_each_time(folder: Path) -> None:
    first, second = (draw_bugs("small", MODULE, folder) for _ in range(2))
    assert first == second
    assert len({(bug.rule.name, bug.place) for bug in first}) == 10


@pytest.mark.nightly
def test_what_changes_nothing_is_left_out(folder: Path) -> None:
    """The bias of keys adds the same to all scores of a row."""
    bugs = draw_bugs("small", MODULE, folder, count=99)
    biases = [bug for bug in bugs if bug.rule.name == "bias-left-out"]
    part = ast.parse(SOURCE).body[-1]
    assert len([*rewritten(RULES["bias-left-out"], part)]) == 4
    assert (
        len(biases) == 2
    )  # of the three of q, v and o, as many as are drawn of one rule
    for bug in biases:
        source = ast.unparse(bug.trees["layer.py"])
        assert "F.linear(x, self.k_proj.weight)" not in source


@pytest.mark.nightly
def test_what_crashes_is_left_out(folder: Path) -> None:
    file = folder / "owner+name" / "layer.py"
    checked = SOURCE.replace(
        "    weights =", "    assert scores.isinf().any()\n    weights ="
    )
    file.write_text(checked)
    rules = {bug.rule.name for bug in draw_bugs("small", MODULE, folder, count=99)}
    assert "fill-tiny" not in rules
    assert "scale-dropped" in rules


ROTARY = ast.parse(
    """
def forward(self, xq, xk, cos, sin):
    xq, xk = (norm(xq), norm(xk))
    q, k = (apply_rotary(xq, cos, sin), apply_rotary(xk, cos, sin))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
).body[0]


@pytest.mark.parametrize(
    ("rule", "written"),
    [
        ("rotary-on-queries-alone", "(apply_rotary(xq, cos, sin), xk)"),
        ("rotary-on-keys-alone", "(xq, apply_rotary(xk, cos, sin))"),
        ("rotary-shifted", "apply_rotary(xk, cos.roll(1, 1), sin.roll(1, 1))"),
        ("norm-dropped", "(xq, norm(xk))"),
        ("not-causal", "is_causal=False"),
        ("mask-while-training", "is_causal=self.training"),
        ("scale-dropped", "scale=1.0"),
        ("keys-and-values-exchanged", "scaled_dot_product_attention(q, v, k"),
    ],
)
def test_a_rule_writes_what_it_says(rule: str, written: str) -> None:
    texts = [ast.unparse(each) for each in rewritten(RULES[rule], ROTARY)]
    assert written in texts[0]
    assert all(text.count("\n") == 3 for text in texts)


@pytest.mark.parametrize(
    ("line", "written"),
    [("return x * cos - y * sin", "x * cos + y * sin"), ("return -x", "return x")],
)
def test_the_sign_of_a_rotation_is_flipped(line: str, written: str) -> None:
    part = ast.parse(f"def rotate(x, y, cos, sin):\n    {line}").body[0]
    (new,) = rewritten(RULES["rotary-sign-flipped"], part)
    assert written in ast.unparse(new)


def test_a_bug_has_the_weights_of_the_correct_module(folder: Path) -> None:
    bug = draw_bugs("small", MODULE, folder)[0]
    right, wrong = (make_with(MODULE, folder, each) for each in (None, bug.trees))
    pairs = zip(right.parameters(), wrong.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
