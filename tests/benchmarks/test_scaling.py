"""The paths whose growth is measured compute one thing, and the file holds them all."""

import pytest
import torch
from benchmarks.scaling import PATHS, attend, error_of, summary
from torch import Tensor

from transformer_book import load_record

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


def test_each_path_is_the_open_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in EAGER:
        error = error_of(path, 70, attend(path, 70)())
        assert error is not None
        assert error < 2e-6, path

    def halved(q: Tensor, k: Tensor, v: Tensor):
        return lambda: torch.softmax(q @ k.mT / 4, dim=-1) @ v

    monkeypatch.setitem(PATHS, "open", halved)
    error = error_of("open", 70, attend("open", 70)())
    assert error is not None
    assert error > 0.1


def test_a_summary_fits_both_growths() -> None:
    cells = [cell(t, 3.0 * t**2, 2**20 * t) for t in (2, 3, 5)]
    fitted = summary(cells)
    assert fitted["lengths"] == [2, 3, 5]
    assert fitted["milliseconds"] == [12.0, 27.0, 75.0]
    assert fitted["peak_mib"] == [2.0, 3.0, 5.0]
    assert (fitted["slope_of_time"], fitted["slope_of_memory"]) == (2.0, 1.0)
    assert summary([cell(2, 1.0, 0), cell(3, 1.0, 0)])["slope_of_memory"] == 0.0


def test_the_file_holds_every_path_and_all_agree() -> None:
    report = load_record("scaling")
    assert list(report["results"]["paths"]) == list(PATHS)
    for name, path in report["results"]["paths"].items():
        errors = [error for error in path["largest_error"] if error is not None]
        assert (errors == []) is (name in LAYERS), name
        assert all(0 < error < 1e-5 for error in errors), name
        assert 4096 in path["lengths"]
