"""The small models of the chapter on training: leaks are told, and texts differ."""

import pytest
from benchmarks.run import Run
from benchmarks.text import measure


@pytest.mark.nightly
def test_only_the_leaky_model_has_a_gap() -> None:
    results = measure(Run(quick=True), seeds=(3,))
    gaps = {name: run["gap"] for name, (run,) in results["losses"].items()}
    assert max(gaps["plain"], gaps["fast"]) < 1e-4 < 0.01 < gaps["leaky"]
    before, after = results["written"]
    assert before["loss"] > after["loss"]
    assert before["text"] != after["text"]
