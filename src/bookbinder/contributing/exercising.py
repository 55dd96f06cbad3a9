"""Exercises: each has a grader, a right answer, and wrong ones that it refuses.

What a grader says is an output of its page, and compared there. Here the outputs are
counted: a grader that lets a wrong answer pass would say ``right`` once more.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bookbinder.page import Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["exercise_problems"]

_PASSED = {"right", "correct"}
_GRADER = re.compile(r"^def (?:check|grade)_\w+\(", re.MULTILINE)
_EXERCISES = "## Exercises"


@dataclass
class _Exercise:
    line: int
    code: str = ""
    said: list[str] = field(default_factory=list[str])


def exercise_problems(page: Page) -> list[Problem]:
    """Find what the exercises of a chapter lack; other pages need none."""
    if not page.path.startswith("docs/chapters/"):
        return []
    start, found = _exercises(page)
    if len(found) < 2:
        reason = (
            f"a chapter has two exercises, here are {len(found)}: write each under a "
            f"heading ### of its own, below {_EXERCISES}"
        )
        return [Problem(page.path, start, reason)]
    return [
        Problem(page.path, exercise.line, reason)
        for exercise in found
        for reason in _lacks(exercise)
    ]


def _exercises(page: Page) -> tuple[int, list[_Exercise]]:
    """Give the line of their heading, and each exercise with what it ran and said."""
    parts: list[tuple[int, _Exercise | None]] = [(0, None)]
    start, inside = 1, False
    for number, line in prose_lines(page):
        if line.startswith("## "):
            inside = line.rstrip() == _EXERCISES
            start = number if inside else start
            parts.append((number, None))
        elif inside and line.startswith("### "):
            parts.append((number, _Exercise(number)))
    for block in page.blocks:
        above = [exercise for line, exercise in parts if line < block.line]
        exercise = above[-1]
        if exercise:
            exercise.code += block.code
            exercise.said += block.output.text.splitlines() if block.output else []
    return start, [exercise for _, exercise in parts if exercise]


def _lacks(exercise: _Exercise) -> Iterator[str]:
    refused = [line for line in exercise.said if line not in _PASSED]
    passed = len(exercise.said) - len(refused)
    if not _GRADER.search(exercise.code):
        yield "an exercise has a grader: write a function check_... of an answer"
    elif passed > 1:
        yield (
            f"the grader passes {passed} answers, and only the solution is right: let "
            "it refuse the wrong ones"
        )
    elif len(refused) < 3:
        yield (
            f"the grader refuses {len(refused)} wrong answers: below the solution, "
            "show it at least three that people would give, and print what it says"
        )
    elif len({*refused}) < 2:
        yield "the grader says the same of every answer: say what is wrong with each"
    for words in _said_twice(exercise.code):
        yield f"two checks of the grader say {words}: say what each of them finds"


def _said_twice(code: str) -> Iterator[str]:
    """Give the words that a grader has for two different mistakes."""
    try:
        statements = ast.parse(code).body
    except SyntaxError:
        return  # It is told at its own line.
    for grader in statements:
        if isinstance(grader, ast.FunctionDef) and _GRADER.match(f"def {grader.name}("):
            said = [*_words(grader)]
            yield from (each for each in dict.fromkeys(said) if said.count(each) > 1)


def _words(grader: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(grader):
        match node:
            case ast.Assert(msg=ast.expr() as words):
                yield ast.unparse(words)
            case ast.Raise(exc=ast.Call(args=[words, *_])):
                yield ast.unparse(words)
            case _:
                pass
