"""The answers about modules and bugs are counted."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.public import asking, found, learn, measure_found, measure_public
from benchmarks.public.asking import Answer, ask, shortened, tables, verdict
from benchmarks.public.modules import Module
from benchmarks.public.telling import told, told_found
from torch import Tensor, nn

RIGHT = Answer("right")
LIMITED = Answer("wrong", ("dtypes",), ("beyond-half",))
REFUSED = Answer("refused", reason="TypeError: how?")


@pytest.mark.parametrize(
    ("answer", "right", "worth"),
    [
        (Answer("wrong", ("leak",), ("no-scale",)), RIGHT, "named rightly"),
        (Answer("wrong", ("leak",), ("added-ones",)), RIGHT, "misnamed"),
        (Answer("wrong", ("leak",)), RIGHT, "caught, not named"),
        (RIGHT, RIGHT, "passed as right"),
        (Answer("not known"), RIGHT, "not known"),
        (LIMITED, LIMITED, "as the correct module"),
        (Answer("wrong", ("dtypes", "leak")), LIMITED, "caught, not named"),
        (REFUSED, REFUSED, "as the correct module"),
        (REFUSED, RIGHT, "refused"),
    ],
)
def test_an_answer_about_a_bug_is_worth(
    answer: Answer, right: Answer, worth: str
) -> None:
    assert verdict(answer, right, ("no-scale",)) == worth


def test_the_answers_are_counted_and_told() -> None:
    bug = {way: {"verdict": "misnamed"} for way in asking.WAYS}
    states = [
        ("right", "wrong", ("dtypes",), [bug]),
        ("refused", "wrong", ("dtypes", "leak"), [bug, bug]),
    ]
    found = {
        name: {
            "as they are": {"state": first, "failed": (), "reason": ""},
            "with adapters": {"state": second, "failed": failed, "reason": "so"},
            "bugs": [{"rule": "scale-dropped", **each} for each in bugs],
        }
        for name, (first, second, failed, bugs) in zip("ab", states, strict=True)
    }
    counted = tables(found)
    first, second = counted["as they are"], counted["with adapters"]
    none = dict.fromkeys(asking.MODULES, 0)
    assert first["modules"] == {"all": 2, **none, "right": 1, "refused": 1}
    assert second["modules"] == {"all": 2, **none, "limited": 1, "wrong": 1}
    assert first["bugs"]["all"] == first["bugs"]["misnamed"] == 3
    assert sum(first["bugs"].values()) == 6
    lines = [*told({"learn": {**counted, "each": found}}, verbose=True)]
    assert lines[2].split() == ["right", "1", "0"]
    assert lines[-4:] == [
        *("b", "  refused | wrong  so"),
        *["    scale-dropped: misnamed | misnamed"] * 2,
    ]
    short = shortened({"learn": {**counted, "each": found}})["learn"]
    assert {**short, "each": None} == {**counted, "each": None}
    worth = dict.fromkeys(asking.WAYS, "misnamed")
    assert short["each"]["b"]["bugs"] == [{"rule": "scale-dropped", **worth}] * 2
    assert short["each"]["a"]["as they are"] == found["a"]["as they are"]


class Slow(nn.Module):
    """Attention, it seems, that does not come to an end."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Go round in a circle."""
        while True:
            x = x.sin()


@pytest.mark.nightly
def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_SECONDS", 1)
    answer = ask(Slow())
    assert answer.state == "refused"
    assert not answer.said
    assert "more than 1 seconds" in answer.reason


def test_what_is_right_is_said_to_be() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    answer = ask(layer, skip=["empty rows"])
    assert (answer.state, answer.failed) == ("right", ())
    assert answer.said.startswith("MultiheadAttention is right; its arguments need_")
    assert ask(lambda x: x * torch.rand(())).state == "refused"


@pytest.mark.parametrize("folder", [None, Path("/nowhere")])
def test_without_checkouts_there_is_nothing_to_ask(folder: Path | None) -> None:
    with pytest.raises(ValueError, match="--projects"):
        measure_public(folder, ["learn"], only="karpathy")
    with pytest.raises(ValueError, match="--projects"):
        measure_found(folder)


@pytest.mark.nightly
def test_a_run_goes_on_from_the_answers_of_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner+name").mkdir()
    module = Module(repository="owner/name", commit="0" * 40, files={}, make="")
    names = ["owner/name", "owner/name:other"]
    monkeypatch.setattr(learn, "MODULES", dict.fromkeys(names, module))
    # Processes that are forked from a test run would keep its open files.
    monkeypatch.setattr(
        asking, "ProcessPoolExecutor", lambda count, **_: ThreadPoolExecutor(count)
    )

    def measured(state: str) -> dict[str, Any]:
        said = dict.fromkeys(asking.WAYS, asdict(Answer(state)))
        monkeypatch.setattr(asking, "_asked", lambda *_, **__: {**said, "bugs": []})
        return measure_public(tmp_path, ["learn"], parts=tmp_path / "parts")

    first = measured("right")
    assert measured("refused") == first
    (kept,) = tmp_path.glob("parts/learn/owner+name:other.*.json")
    kept.unlink()
    mixed = measured("refused")["learn"]["as they are"]["modules"]
    assert (mixed["right"], mixed["refused"]) == (1, 1)
    monkeypatch.setattr(asking, "modules_used", dict)
    assert measured("refused")["learn"]["as they are"]["modules"]["refused"] == 2


def test_modules_that_may_be_wrong_are_asked_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner+name").mkdir()
    module = Module(
        repository="owner/name",
        commit="0" * 40,
        files={},
        make="",
        adapter="",
        d_model=6,
    )
    wrong = Answer("wrong", ("leak",), said="It is WRONG: leak")
    answers = {6: [REFUSED, wrong], 7: [RIGHT, LIMITED]}
    modules = {f"owner/name:{d}": replace(module, d_model=d) for d in answers}
    modules["owner/absent"] = replace(module, repository="owner/absent")
    monkeypatch.setattr(found, "MODULES", modules)
    monkeypatch.setattr(
        asking,
        "_answer",
        lambda module, _folder, _trees, way: answers[module.d_model][
            asking.WAYS.index(way)
        ],
    )
    results = measure_found(tmp_path)
    none = dict.fromkeys(asking.MODULES, 0)
    assert results["as they are"] == {"all": 2, **none, "right": 1, "refused": 1}
    assert results["with adapters"] == {"all": 2, **none, "limited": 1, "wrong": 1}
    first = results["each"]["owner/name:6"]
    assert first["commit"] == "0" * 40
    assert first["with adapters"]["failed"] == ("leak",)
    lines = [*told_found(results, verbose=True)]
    assert lines[1].split() == ["right", "1", "0"]
    assert lines[-4:] == [
        *("owner/name:6: refused | wrong", "  It is WRONG: leak"),
        *("owner/name:7: right | wrong", "  "),
    ]
    assert measure_found(tmp_path, only=":7")["as they are"]["all"] == 1
