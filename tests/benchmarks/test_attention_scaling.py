"""The paths whose growth is measured compute one thing, and the file holds them all."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.attention_scaling import (
    PATHS,
    attend,
    error_of,
    inputs,
    summary,
)
from torch import Tensor

FILE = Path(__file__).parents[2] / "benchmarks" / "results" / "scaling.json"
LAYERS = [path for path in PATHS if path.startswith("nn.")]
# Compiling takes seconds: what the compiled ones give is held by the file below.
EAGER = [path for path in PATHS if "compiled" not in path and path not in LAYERS]


def cell(length: int, milliseconds: float, peak: int) -> dict:
    time = {"median_ms": milliseconds, "count": 3}
    return {
        "length": length,
        "time": time,
        "peak_bytes": peak,
        "error": None,
        "first_call_s": 0.0,
    }


@pytest.mark.parametrize("path", EAGER)
def test_each_path_is_the_open_attention(path: str) -> None:
    error = error_of(path, 70, attend(path, 70)())
    assert error is not None
    assert error < 2e-6


def test_an_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(q: Tensor, k: Tensor, v: Tensor):
        return lambda: torch.softmax(q @ k.mT / 4, dim=-1) @ v

    monkeypatch.setitem(PATHS, "open", halved)
    error = error_of("open", 70, attend("open", 70)())
    assert error is not None
    assert error > 0.1


@pytest.fixture
def _fast_path() -> Iterator[None]:
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.usefixtures("_fast_path")
def test_the_layers_are_one_layer() -> None:
    outputs = []
    for path in LAYERS:
        output, weights = attend(path, 7)()
        assert (weights is not None) is path.endswith("weights")
        outputs.append(output)
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])


def test_the_inputs_are_the_same_at_each_call() -> None:
    assert inputs(5).shape == (3, 1, 4, 5, 64)
    assert torch.equal(inputs(5), inputs(5))


def test_a_summary_fits_both_growths() -> None:
    cells = [cell(t, 3.0 * t**2, 2**20 * t) for t in (2, 3, 5)]
    made = summary(cells)
    assert made["lengths"] == [2, 3, 5]
    assert made["milliseconds"] == [12.0, 27.0, 75.0]
    assert made["peak_mib"] == [2.0, 3.0, 5.0]
    assert (made["slope_of_time"], made["slope_of_memory"]) == (2.0, 1.0)
    assert summary([cell(2, 1.0, 0), cell(3, 1.0, 0)])["slope_of_memory"] == 0.0


def test_the_file_holds_every_path_and_all_agree() -> None:
    report = json.loads(FILE.read_text("utf-8"))
    assert report["kind"] == "scaling"
    assert not report["quick"]
    assert report["stamp"]["torch"].partition("+")[0] == "2.13.0"
    assert list(report["results"]["paths"]) == list(PATHS)
    for name, path in report["results"]["paths"].items():
        errors = [each for each in path["largest_error"] if each is not None]
        assert (errors == []) is (name in LAYERS), name
        assert all(0 < each < 1e-5 for each in errors), name
        assert 4096 in path["lengths"]
