"""What is reported can be told apart, and cannot be changed by who is told."""

from dataclasses import FrozenInstanceError

import pytest

from tested_transformer.training.progress import Progress, Validation


def test_reports_are_values():
    found = Validation(step=2, loss=2.5, prefix=2.25, full=2.25, gap=0.0)
    report = Progress(
        step=2,
        steps=3,
        loss=2.0,
        lr=0.5,
        gradient=1.0,
        tokens_per_second=7.0,
        seconds=11.0,
        seconds_left=5.5,
    )
    assert report.validation is None
    for value in (found, report):
        with pytest.raises(FrozenInstanceError):
            value.step = 5
