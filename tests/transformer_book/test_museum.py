"""The kill matrix: who catches whom. Two pages print all of it, and are compared."""

import pytest

from attention_check import CHECKS, EXHIBITS, Steps
from transformer_book import load_record
from transformer_book.museum import alone, kill_matrix, redundant


class Right:
    """What is no exhibit: all steps are the correct ones."""

    name, steps = "right", Steps()


# Thousands of calls: their shapes are checked where each exhibit is called once.
@pytest.mark.usefixtures("as_a_caller")
def test_what_is_right_passes_and_what_was_trained_leaks_where_the_checks_say() -> None:
    measured = load_record("museum")["results"]["dice"]
    assert list(measured) == ["right", *EXHIBITS]
    matrix = kill_matrix([Right, *[*EXHIBITS.values()][::6]])
    assert matrix["right"] == dict.fromkeys(CHECKS, False)
    for name, row in matrix.items():
        leaks = max(run["leak"] for run in measured[name]) > 1e-3
        assert row["leak"] is leaks, name
    assert {row["leak"] for row in matrix.values()} == {True, False}


def test_alone_and_redundant_by_hand() -> None:
    names = list(CHECKS)
    rows = {
        "a": dict.fromkeys(names, False) | {"leak": True},
        "b": dict.fromkeys(names, False) | {"leak": True, "prefix": True},
    }
    assert alone(rows) == {key: [] for key in names} | {"leak": ["a"]}
    assert ("prefix", "leak") in redundant(rows)
    assert ("leak", "prefix") not in redundant(rows)
