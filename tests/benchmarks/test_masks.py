"""What the file on masks says of the libraries at hand, asked again."""

from pathlib import Path

import pytest
from benchmarks.masks import EMPTY_ATTEND, QUESTIONS, answer, have, installed_rows, row

from transformer_book import load_record

ROOT = Path(__file__).parents[2]
REPORT = load_record("masks")


@pytest.mark.usefixtures("as_a_caller")
def test_the_file_says_what_the_libraries_at_hand_answer() -> None:
    rows = REPORT["results"]["rows"]
    live = installed_rows()
    assert {name: rows[name] for name in live} == live


def test_the_file_has_an_answer_from_every_library() -> None:
    results = REPORT["results"]
    assert "not measured" not in results["versions"].values()
    names = [name.split()[0] for name in results["rows"]]
    assert {"Keras", "keras.ops", "Flax", "jax.nn"} <= set(names)
    questions = [*QUESTIONS, "empty row"]
    assert all(list(answers) == questions for answers in results["rows"].values())
    for library in ("Keras layer", "Flax layer"):
        assert results["conversions"][library]["same output"]


def test_the_table_on_the_page_is_the_one_that_its_run_prints() -> None:
    page = (ROOT / "docs/in-depth/masks-of-six-libraries.md").read_text("utf-8")
    printed = page.partition("```text\n")[2].partition("\n\n")[0]
    assert len(printed.splitlines()) == len(REPORT["results"]["rows"])
    assert f"\n{printed}\n" in page.partition("/// details")[0]


def test_an_error_is_an_answer() -> None:
    def refuse(mask: list) -> list[float]:
        if not any(mask):
            raise KeyError(mask)
        return [1 / 3, float("nan"), 0.0]

    assert answer(refuse, [True]) == "0.33 nan 0.00"
    assert answer(refuse, EMPTY_ATTEND) == "KeyError"
    assert list(row(refuse).values()) == ["0.33 nan 0.00"] * 3 + ["KeyError"]
    assert row(refuse, empty=[True])["empty row"] == "0.33 nan 0.00"


def test_a_library_is_here_if_all_its_packages_are() -> None:
    assert have("torch")
    assert not have("torch", "no_such")
