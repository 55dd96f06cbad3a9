"""The kill matrix, made anew: who catches whom, and whom nobody else does."""

import pytest
from jaxtyping import config

from tested_transformer.checking import CHECKS, EXHIBITS, Steps
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.checker import judge
from tested_transformer.checking.diagnosis import likely_exhibits
from transformer_book import load_record
from transformer_book.museum import alone, exhibit_layer, kill_matrix, redundant


@pytest.fixture(scope="module")
def matrix() -> dict[str, dict[str, bool]]:
    # Thousands of calls: their shapes are checked where each exhibit is called once.
    config.update("jaxtyping_disable", True)
    rows = kill_matrix(EXHIBITS.values())
    config.update("jaxtyping_disable", False)
    return rows


def test_every_exhibit_is_caught_and_every_check_catches(matrix) -> None:
    assert list(matrix) == list(EXHIBITS)
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    assert {check for row in matrix.values() for check in row if row[check]} == {
        *CHECKS
    }


def test_what_is_right_passes_every_check() -> None:
    report = judge(make_subject(exhibit_layer(Steps())))
    assert [verdict.passed for verdict in report.verdicts] == [True] * len(CHECKS)


def test_what_each_check_alone_catches(matrix) -> None:
    assert {
        check: exhibits for check, exhibits in alone(matrix).items() if exhibits
    } == {
        "padding": ["padding-ignored", "padding-on-the-wrong-axis"],
        "empty rows": ["nan-in-empty-rows", "nan-replaced"],
        "huge scores": ["large-but-finite"],
        "cache": ["top-left", "unmasked-chunks"],
        "modes": ["lost-with-dropout", "dropout-while-evaluating"],
        "dtypes": ["beyond-half"],
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


# Of each kind of difference one: by the output, in pieces, padded, by the gradient, in
# half precision, while training. A fill of 1e-9 is a fill of 0, up to rounding.
TOLD_APART = {
    "tiny-fill": ["scores-times-mask", "tiny-fill"],
    "unmasked-chunks": ["unmasked-chunks"],
    "padding-on-the-wrong-axis": ["padding-on-the-wrong-axis"],
    "backward-without-mask": ["backward-without-mask"],
    "beyond-half": ["beyond-half"],
    "lost-with-dropout": ["lost-with-dropout"],
}


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize("name", TOLD_APART)
def test_an_exhibit_is_told_from_all_others(name: str) -> None:
    subject = make_subject(exhibit_layer(EXHIBITS[name].steps))
    likely = likely_exhibits(subject)
    assert [exhibit.name for exhibit in likely.exhibits] == TOLD_APART[name]
    assert not likely.whole_only


def test_what_was_trained_leaks_where_the_checks_say_so(matrix) -> None:
    measured = load_record("museum")["results"]["dice"]
    assert list(measured) == ["right", *EXHIBITS]
    leaking = {
        name
        for name, runs in measured.items()
        if max(run["leak"] for run in runs) > 1e-3
    }
    caught = {name for name, row in matrix.items() if row["leak"]}
    # This one leaks while dropout is there, and the leak check takes dropout away.
    assert leaking == caught | {"lost-with-dropout"}
