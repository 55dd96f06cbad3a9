"""Modules are made as their files say, and the answers about them are counted."""

import re
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.corpus import asking, found, public
from benchmarks.corpus.asking import Answer, ask, verdict
from benchmarks.corpus.modules import CORPUS, Module, make, read
from benchmarks.corpus.verifying import problems
from benchmarks.run import SETS, Run

SOURCE = """\
import absent

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)

    def forward(self, x: absent.Features):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = (q @ k.mT / SIZE**0.5).softmax(-1)
        return weights @ v
"""
FILE = f"""
repository = "owner/name"
commit = "{"0" * 40}"
names = "SIZE = 6"
make = "Layer()"
call = "lambda layer, x: layer(x)"
d_model = 6
files = {{"layer.py" = ["Layer"]}}
hashes = {{"layer.py" = "{sha256(SOURCE.encode()).hexdigest()[:16]}"}}
[[bugs]]
bug = "no-scale"
kind = "scale"
names = ["no-scale"]
file = "layer.py"
edits = [["10:27-10:39", ""]]
"""
KINDS = {
    *("batch", "cache", "dropout", "heads", "kv-heads", "mask", "other", "padding"),
    *("positions", "projections", "scale", "softmax"),
}


def attend(layer: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = layer.qkv(x).chunk(3, dim=-1)
    return (q @ k.mT * scale).softmax(-1) @ v


def check(layer: Any, call: Any = None) -> Answer:
    """Say what the scale is, for a layer that is said how to call."""
    x = torch.ones(1, 2, 6).cumsum(1)
    if torch.allclose(call(layer, x), attend(layer, x, 6**-0.5)):
        return Answer("right")
    return Answer("wrong", ("no-scale", "tiny-fill"))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Return the only module of a set, which has a checkout in a folder."""
    for name in ("owner+name", "unseen", "found"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner+name+other.toml").write_text(FILE)
    (tmp_path / "owner+name" / "layer.py").write_text(SOURCE)
    monkeypatch.setattr(asking, "CORPUS", tmp_path)
    checks = SimpleNamespace(check_attention=check)
    monkeypatch.setitem(sys.modules, "attention_check", checks)
    return read(tmp_path / "unseen" / "owner+name+other.toml")


def test_a_layer_is_made_with_and_without_a_bug(module: Module, tmp_path: Path) -> None:
    right, settings = make(module, tmp_path)
    wrong, _ = make(module, tmp_path, module.bugs[0])
    x = torch.randn(2, 3, 6)
    assert torch.allclose(settings["call"](right, x), attend(right, x, 6**-0.5))
    assert torch.allclose(wrong(x), attend(right, x, 1.0))
    with pytest.raises(ValueError, match=r"layer.py has no Head$"):
        make(replace(module, files={"layer.py": ["Head"]}), tmp_path)
    with pytest.raises(ValueError, match=r"layer.py is not that of 000"):
        make(replace(module, hashes={"layer.py": "0"}), tmp_path)


def test_what_is_wrong_with_an_entry_is_said(module: Module, tmp_path: Path) -> None:
    assert [*problems(module, tmp_path)] == []
    idle = replace(module.bugs[0], edits=(("10:36-10:39", "(1 / 2)"),))
    changed = replace(module, bugs=(idle,), like="lambda layer, x: layer(x) + 0.5")
    messages = [*problems(changed, tmp_path)]
    assert messages[0] == "owner/name:other, no bug: off by 0.5, 3 long, []"
    assert messages[3:] == ["owner/name:other, no-scale: it changes nothing"]
    (error,) = problems(replace(module, make="Layer().absent"), tmp_path)
    assert error.startswith("owner/name:other, no bug: AttributeError")


def test_an_answer_about_a_bug_is_worth() -> None:
    for answer, worth in (
        (Answer("wrong", ("no-scale",)), "named alone"),
        (Answer("wrong", ("a", "no-scale")), "named among three"),
        (Answer("wrong", ("a", "b", "c", "no-scale")), "no name"),
        (Answer("wrong", ("a",)), "other names"),
        (Answer("wrong"), "no name"),
        (Answer("cannot tell"), "cannot tell"),
    ):
        assert verdict(answer, Answer("right"), ["no-scale"]) == worth
        if answer.state == "wrong":
            assert verdict(answer, answer, ["no-scale"]) == "as the correct module"


def test_a_set_is_asked_counted_and_kept(
    module: Module,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(projects=tmp_path, parts=tmp_path / "parts", verbose=True)
    results: Any = public(run)
    first, second = (results["unseen"][way] for way in asking.WAYS)
    assert first["modules"]["refused"] == first["bugs"]["refused"] == 1
    assert second["modules"]["right"] == second["bugs"]["named among three"] == 1
    assert "no-scale: refused | named among three" in capsys.readouterr().out
    assert [*results["unseen"]] == [*asking.WAYS]
    monkeypatch.delitem(sys.modules, "attention_check")
    assert public(run) == results
    with pytest.raises(ValueError, match="--projects"):
        found(replace(run, projects=tmp_path / "empty"))


def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = SimpleNamespace(check_attention=lambda layer: [*iter(lambda: 0, 1)])
    monkeypatch.setitem(sys.modules, "attention_check", endless)
    monkeypatch.setattr(asking, "_SECONDS", 0.1)
    assert ask(None) == Answer(
        "refused", said="TimeoutError: took more than 0.1 seconds"
    )


def test_the_files_say_all_that_measuring_needs() -> None:
    projects: dict[str, set[str]] = {name: set() for name in (*SETS, "found")}
    for file in CORPUS.glob("*/*.toml"):
        module = read(file)
        assert file.stem.startswith(module.repository.replace("/", "+")), file
        assert re.fullmatch("[0-9a-f]{40}|.+==.+", module.commit), file
        assert module.files.keys() == module.hashes.keys(), file
        for text in (module.make, module.call, module.like, module.pieces):
            compile(text.strip() or "0", str(file), "eval")
        for bug in module.bugs:
            assert bug.kind in KINDS, file
            assert bug.file in module.files, file
            places = [[*map(int, re.split("[:-]", place))] for place, _ in bug.edits]
            bounds = [place[at : at + 2] for place in places for at in (0, 2)]
            assert bounds, (file, bug.bug)
            assert bounds == sorted(bounds), (file, bug.bug)
        projects[file.parent.name].add(module.repository.lower())
    measured = [projects[name] for name in SETS]
    assert len(set().union(*measured)) == sum(map(len, measured))
