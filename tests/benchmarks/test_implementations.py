"""Every way to write attention is measured, and the file holds them all."""

import pytest
from benchmarks.implementations import NAMES, SIZES, Size, measure, question
from benchmarks.run import Run

from transformer_book import load_record


def test_what_is_asked_is_what_all_can_answer() -> None:
    size = Size(batch=2, length=5, width=12, heads=3, calls=1)
    task = question(size)
    assert task.x.shape == (2, 5, 12)
    assert task.layer.num_heads == 3
    assert task.causal
    assert task.context is None


# Plain Python adds up from 0, a whole number, which the shape checks refuse.
@pytest.mark.usefixtures("as_a_caller")
def test_all_take_turns_at_each_size() -> None:
    # JAX would compile for seconds; the file below has seen it.
    names = ["plain Python", "NumPy, head by head", "nn.MultiheadAttention"]
    tiny = Size(batch=1, length=3, width=4, heads=2, calls=1)
    sizes = {"small": tiny, "large": tiny}
    report = measure(Run(quick=True), names, sizes)
    assert list(report["small"]["step"]) == names
    assert list(report["large"]["step"]) == names[1:]
    assert report["small"]["size"]["width"] == 4
    assert all(taken["count"] == 2 for taken in report["small"]["step"].values())


def test_the_file_holds_what_the_program_measures() -> None:
    report = load_record("implementations")
    for label, size in SIZES.items():
        measured = report["results"][label]
        assert measured["size"] == vars(size)
        assert set(NAMES) - set(measured["step"]) <= {"plain Python"}
    assert set(report["results"]["small"]["step"]) == set(NAMES)
