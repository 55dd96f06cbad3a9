"""The factors of short runs, worked out by hand."""

import math
import re

import pytest
from hypothesis import given, strategies as st

from tested_transformer.training.schedule import SCHEDULES, rate_factor


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "constant", "steps": 4}, [1, 1, 1, 1]),
        ({"schedule": "constant", "steps": 5, "warmup": 3}, [0.25, 0.5, 0.75, 1, 1]),
        ({"schedule": "linear", "steps": 4}, [1, 0.75, 0.5, 0.25]),
        ({"schedule": "linear", "steps": 5, "warmup": 1}, [0.5, 1, 0.75, 0.5, 0.25]),
        ({"schedule": "linear", "steps": 2, "final": 0.2}, [1, 0.6]),
        ({"schedule": "trapezoid", "steps": 6, "decay": 1 / 3}, [1, 1, 1, 1, 1, 0.5]),
        (
            {"schedule": "trapezoid", "steps": 8, "decay": 0.5, "warmup": 1},
            [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25],
        ),
        # The fall begins no sooner than the rise has ended.
        (
            {"schedule": "trapezoid", "steps": 5, "decay": 1.0, "warmup": 1},
            [0.5, 1, 0.75, 0.5, 0.25],
        ),
        ({"schedule": "trapezoid", "steps": 3, "decay": 0.0}, [1, 1, 1]),
        (
            {"schedule": "cosine", "steps": 3},
            [1, 0.5 + 0.5 * math.cos(math.pi / 3), 0.5 - 0.5 * math.cos(math.pi / 3)],
        ),
        ({"schedule": "cosine", "steps": 2, "final": 0.1}, [1, 0.55]),
    ],
    ids=str,
)
def test_the_factors_are_those_worked_out_by_hand(
    settings: dict, expected: list[float]
):
    factors = [rate_factor(step, **settings) for step in range(settings["steps"])]
    assert factors == pytest.approx(expected, abs=1e-12)


@given(
    schedule=st.sampled_from(SCHEDULES),
    steps=st.integers(2, 50),
    rise=st.floats(0, 0.9),
    decay=st.floats(0, 1),
    final=st.floats(0, 1),
)
def test_it_rises_then_falls_and_wastes_no_step(
    schedule: str, steps: int, rise: float, decay: float, final: float
):
    warmup = int(rise * steps)
    factors = [
        rate_factor(
            step,
            steps=steps,
            schedule=schedule,
            warmup=warmup,
            decay=decay,
            final=final,
        )
        for step in range(steps)
    ]
    assert all(0.0 < factor <= 1.0 for factor in factors)
    assert factors[:warmup] == sorted(factors[:warmup])
    assert factors[warmup] == 1.0
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert min(factors[warmup:]) >= final


def test_an_unknown_schedule_is_named():
    message = "schedule='sine' must be one of cosine, linear, trapezoid, constant"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rate_factor(0, steps=2, schedule="sine")
