"""The measurement of the museum, in a few steps: it tells what leaks."""

import torch
from benchmarks.museum import COMPARED, throw_dice, with_dice

from attention_check import EXHIBITS


def test_a_run_on_dice_reports_losses_and_the_leak() -> None:
    right, wrong = (with_dice(name, steps=4) for name in ("right", "one-too-far"))
    assert right["leak"] == 0.0 < wrong["leak"]
    assert len(right["training"]) == 4
    assert right["validation"] == right["honest"] == right["repaired"]
    assert wrong["validation"] != wrong["honest"]


def test_the_second_half_of_a_text_can_be_known() -> None:
    tokens = throw_dice(5)
    assert tokens.shape == (5, 17)
    assert torch.equal(tokens[:, 8:], tokens[:, :9])


def test_what_is_trained_on_a_text_is_in_the_museum() -> None:
    assert {*COMPARED} <= {"right", *EXHIBITS}
