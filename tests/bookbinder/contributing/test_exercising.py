"""Exercises are counted, and what their graders say."""

import pytest

from bookbinder.contributing.exercising import exercise_problems
from bookbinder.page import read_page

RIGHT = "right\nno sum\nno mean\nno sum"


def exercise(title: str, said: str = RIGHT, grader: str = "check_it") -> str:
    return (
        f"### {title}\n\n```python\ndef {grader}(answer): ...\n```\n\n"
        "<!--pytest-codeblocks:cont-->\n```python\nprint('...')\n```\n\n"
        f"<!--pytest-codeblocks:expected-output-->\n```text\n{said}\n```\n"
    )


def told(*exercises: str, path: str = "docs/chapters/30-new.md") -> list[str]:
    text = "# New\n\n## Exercises\n\n" + "\n".join(exercises) + "\n## Sources\n"
    return [str(problem) for problem in exercise_problems(read_page(text, path))]


def test_two_exercises_that_refuse_three_answers_each_are_enough() -> None:
    assert told(exercise("One"), exercise("Two", grader="grade_it")) == []


def test_other_pages_need_no_exercises() -> None:
    assert told(path="docs/recipes.md") == []


def test_one_exercise_is_too_few() -> None:
    (reason,) = told(exercise("One"))
    assert reason.startswith("docs/chapters/30-new.md:3: a chapter has two exercises,")
    assert "write each under a heading ###" in reason


@pytest.mark.parametrize(
    ("second", "what", "remedy"),
    [
        (exercise("Two", grader="judge"), "has a grader", "write a function check_"),
        (
            exercise("Two", said=f"{RIGHT}\ncorrect"),
            "passes 2 answers",
            "let it refuse the wrong ones",
        ),
        (
            exercise("Two", said="right\nno sum\nno mean"),
            "refuses 2 wrong answers",
            "show it at least three",
        ),
        (
            exercise("Two", said="right\nno\nno\nno"),
            "the same of every answer",
            "say what is wrong with each",
        ),
    ],
    ids=["no grader", "passes two", "refuses two", "one word for all"],
)
def test_what_an_exercise_lacks_is_told_at_its_heading(
    second: str, what: str, remedy: str
) -> None:
    (reason,) = told(exercise("One"), second)
    line = 5 + exercise("One").count("\n") + 1
    assert reason.startswith(f"docs/chapters/30-new.md:{line}: ")
    assert what in reason
    assert remedy in reason


def test_a_grader_that_does_not_read_is_left_to_those_who_tell_its_line() -> None:
    broken = exercise("Two").replace("(answer): ...", "(answer: ...")
    assert told(exercise("One"), broken) == []


def test_two_checks_do_not_say_the_same() -> None:
    checks = 'assert answer, "none"\n    if answer < 0:\n        raise ValueError({})'
    for words, reasons in (('"negative"', []), ('"none"', ["'none'"])):
        two = exercise("Two").replace("(answer): ...", f"(answer):\n    {checks}")
        found = told(exercise("One"), two.format(words))
        assert [reason.split(": ")[1] for reason in found] == [
            f"two checks of the grader say {each}" for each in reasons
        ]
