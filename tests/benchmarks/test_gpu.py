"""The parts for a GPU run anywhere, and one that fails does not stop the others."""

import time
from pathlib import Path

import pytest
from benchmarks import gpu
from benchmarks.gpu import Setting, run_part, seconds

from tested_transformer.attentions import ATTENTIONS


@pytest.mark.nightly
def test_the_parts_for_a_gpu_run_anywhere(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat that ate the rat that ate the malt. " * 50)
    setting = Setting("cpu", quick=True, text=str(text))
    report: dict = {name: {"error": "not measured"} for name in gpu.PARTS}
    for name in gpu.PARTS.keys() - {"transformers", "nanogpt"}:
        report[name] = gpu.PARTS[name](setting)
    assert report["forms"]["64"].keys() == ATTENTIONS.keys()
    assert all(result["ms"] > 0 for result in report["forms"]["64"].values())
    assert report["attention"]["lengths"] == [64, 128]
    losses = [entry["loss"] for entry in report["shakespeare"]["losses"]]
    assert losses[-1] < losses[0]
    assert gpu.PARTS["nanogpt"](setting) == "not measured: --nanogpt was not given"
    report["transformers"] = {"tokens_per_second": 1.0}
    report["nanogpt"] = {"best_loss": losses[-1], "seconds_to_best": 900.0}
    combined = gpu.together(report)
    assert 0 < combined["part_of_matrix_peak"] < 1
    assert combined["decoding_over_transformers"] == pytest.approx(
        report["decoding"]["tokens_per_second"], rel=0.01
    )
    assert combined["shakespeare"]["target_loss"] == losses[-1]
    assert combined["shakespeare"]["nanogpt_over_ours"] > 1
    calls: list[int] = []
    assert seconds(lambda: calls.append(1), "cpu", rounds=4) < 1
    assert len(calls) == 5


def test_a_part_that_fails_or_takes_too_long_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing, now = Setting("cpu", text="/there/is/no/such.txt"), time.monotonic()
    assert "FileNotFoundError" in run_part("shakespeare", failing, now + 99)["error"]
    none = {"error": "not measured: no time was left"}
    assert run_part("training", failing, now) == none
    monkeypatch.setattr(gpu, "LIMIT", 1.0)
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    report = run_part("training", failing, now + 99)
    assert report["error"] == "not finished after 1 s"
