"""The kill matrix, made anew: who catches whom, and whom nobody else does."""

import pytest
from jaxtyping import config

from attention_check import CHECKS, EXHIBITS, Steps
from transformer_book import load_record
from transformer_book.museum import alone, kill_matrix, redundant


class Right:
    """What is no exhibit: all steps are the correct ones."""

    name, steps = "right", Steps()


@pytest.fixture(scope="module")
def matrix() -> dict[str, dict[str, bool]]:
    # Thousands of calls: their shapes are checked where each exhibit is called once.
    config.update("jaxtyping_disable", True)
    rows = kill_matrix([Right, *EXHIBITS.values()])
    config.update("jaxtyping_disable", False)
    return rows


def test_what_is_right_passes_every_check(matrix) -> None:
    assert matrix["right"] == dict.fromkeys(CHECKS, False)


def test_every_exhibit_is_caught_and_every_check_catches(matrix) -> None:
    assert list(matrix) == ["right", *EXHIBITS]
    assert [name for name in EXHIBITS if not any(matrix[name].values())] == []
    catching = {check for row in matrix.values() for check in row if row[check]}
    assert catching == {*CHECKS}


def test_what_each_check_alone_catches(matrix) -> None:
    found = {check: exhibits for check, exhibits in alone(matrix).items() if exhibits}
    assert found == {
        "empty rows": ["nan-in-empty-rows", "nan-replaced"],
        "huge scores": ["large-but-finite"],
        "cache": ["top-left", "unmasked-chunks"],
        "modes": ["dropout-while-evaluating"],
        "half precision": ["beyond-half"],
    }


def test_alone_and_redundant_by_hand() -> None:
    names = list(CHECKS)
    rows = {
        "a": dict.fromkeys(names, False) | {"leak": True},
        "b": dict.fromkeys(names, False) | {"leak": True, "prefix": True},
    }
    assert alone(rows) == {key: [] for key in names} | {"leak": ["a"]}
    assert ("prefix", "leak") in redundant(rows)
    assert ("leak", "prefix") not in redundant(rows)


def test_what_was_trained_leaks_where_the_checks_say_so(matrix) -> None:
    measured = load_record("museum")["results"]["dice"]
    assert list(measured) == ["right", *EXHIBITS]
    leaking = {
        name
        for name, runs in measured.items()
        if max(run["leak"] for run in runs) > 1e-3
    }
    assert leaking == {name for name, row in matrix.items() if row["leak"]}
