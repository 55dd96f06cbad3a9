"""Times, memory and growth are measured rightly, and small models are trained."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.learning import Descent, fit_to_text, guess_loss
from benchmarks.measuring import Times, in_turns, peak_memory, slope
from torch import nn


def test_the_median_is_that_of_all_calls() -> None:
    times = Times.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert times == Times(3.0, 1.0, 2.0, 4.0, 5)
    assert Times.of([7.0]) == Times(7.0, 7.0, 7.0, 7.0, 1)
    assert times.to_json() == {
        "median_ms": 3000.0,
        "fastest_ms": 1000.0,
        "lower_quartile_ms": 2000.0,
        "upper_quartile_ms": 4000.0,
        "count": 5,
    }
    with pytest.raises(ValueError, match="seconds is empty: nothing was measured"):
        Times.of([])


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    clock = iter(range(100))
    times = in_turns(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        rounds=2,
        calls=3,
        warm_up=1,
        clock=lambda: next(clock),
    )
    assert "".join(calls) == "ab" + "aaabbb" * 2
    assert times == dict.fromkeys("ab", Times(1, 1, 1, 1, 6))


def test_a_slope_is_the_power_of_growth() -> None:
    assert slope([2, 3, 5], [4, 9, 25]) == pytest.approx(2)
    assert slope([2, 3, 5], [14, 21, 35]) == pytest.approx(1)


@pytest.mark.nightly
def test_peak_memory_is_that_of_the_call() -> None:
    def call() -> None:
        torch.ones(64 * 2**20, dtype=torch.uint8)

    if not Path("/proc/self/clear_refs").exists():
        with pytest.raises(OSError, match="clear_refs"):
            peak_memory(call)
        return
    # In a process of its own: memory that other tests gave back would be used again.
    code = (
        "import torch; from benchmarks.measuring import peak_memory\n"
        "call = lambda: torch.ones(64 * 2**20, dtype=torch.uint8)\n"
        "print(peak_memory(call), peak_memory(lambda: None))"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    printed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    peak, nothing = map(int, printed.split())
    assert 60 * 2**20 < peak < 80 * 2**20
    assert nothing < 4 * 2**20


def test_a_rate_rises_and_falls_to_nothing() -> None:
    rates = [Descent(8, 2.0, warm_up=4).rate_at(step) for step in range(8)]
    assert rates == [0.5, 0.875, 1.125, 1.25, 1.0, 0.75, 0.5, 0.25]


def test_what_requires_no_gradient_is_not_trained() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4))
    model[0].requires_grad_(requires_grad=False)
    tokens, kept = torch.arange(4).repeat(20), model[0].weight.clone()
    before = guess_loss(model, tokens[None])
    descent = Descent(30, 0.1, clip=1.0)
    fit_to_text(model, tokens, descent, batch=2, length=9, seed=1)
    assert guess_loss(model, tokens[None]) < before / 2
    assert torch.equal(model[0].weight, kept)
