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

import transformer_book
from transformer_book import exercises

Grade = Callable[[Any], str]
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


def remark_on(grade: Grade, answer: object, seed: int = 0) -> str:
    """Return what a grader says of an answer."""
    torch.manual_seed(seed)
    try:
        return grade(answer)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # the report below names the answer
        return f"(raised {type(error).__name__})"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_graders_of_a_chapter_tell_right_from_wrong(chapter: str) -> None:
    graders = importlib.import_module(f"transformer_book.exercises.{chapter}").__all__
    known = answers(chapter)
    assert {grade.__name__ for grade in known.RIGHT} == {*graders}
    assert known.RIGHT.keys() == known.WRONG.keys()
    for grade, wrong in known.WRONG.items():
        assert getattr(transformer_book, grade.__name__) is grade
        assert len(wrong) >= 3
        remarks = {words: remark_on(grade, answer) for words, answer in wrong.items()}
        assert {w: remark for w, remark in remarks.items() if w not in remark} == {}
        for seed in range(10):  # whatever the grader draws
            assert remark_on(grade, known.RIGHT[grade], seed) == "right"


def test_an_unknown_grader() -> None:
    with pytest.raises(AttributeError, match="grade_nothing"):
        print(transformer_book.grade_nothing)
