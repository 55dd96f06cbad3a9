"""Each grader accepts a right answer and tells at least three wrong ones what is wrong.

The answers to a chapter's exercises are in ``answers``, under the chapter's name.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import transformer_book as book
from transformer_book import exercises

HERE = Path(__file__).parent
FOLDER = Path(exercises.__path__[0])
CHAPTERS = sorted(file.stem for file in FOLDER.glob("[a-z]*.py"))


def answers(chapter: str) -> ModuleType:
    file = HERE / "answers" / f"{chapter}.py"
    spec = importlib.util.spec_from_file_location(f"answers_{chapter}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = [
    (grade, answer, words)
    for chapter in CHAPTERS
    for grade, cases in answers(chapter).WRONG.items()
    for words, answer in cases.items()
]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_right_answer_is_right(chapter: str) -> None:
    module = importlib.import_module(f"transformer_book.exercises.{chapter}")
    given = answers(chapter)
    assert {grade.__name__ for grade in given.RIGHT} == set(module.__all__)
    for grade, answer in given.RIGHT.items():
        assert getattr(book, grade.__name__) is grade
        for seed in range(30):  # whatever the grader draws
            torch.manual_seed(seed)
            assert grade(answer) == "right"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_grader_has_three_wrong_answers(chapter: str) -> None:
    given = answers(chapter)
    assert {grade for grade, cases in given.WRONG.items() if len(cases) >= 3} == set(
        given.RIGHT
    )


@pytest.mark.parametrize(
    ("grade", "answer", "words"),
    CASES,
    ids=lambda each: getattr(each, "__name__", None) or None,
)
def test_a_wrong_answer_is_told_what_is_wrong(
    grade: Callable[[Any], str], answer: Any, words: str
) -> None:
    with pytest.raises(AssertionError) as told:
        grade(answer)
    assert words in str(told.value)


def test_an_unknown_grader() -> None:
    with pytest.raises(AttributeError, match="grade_nothing"):
        print(book.grade_nothing)
