"""Each mutant differs from its module in one place, and only where it may."""

import ast

import pytest

from bookbinder.mutation.operators import apply, mutants

SOURCE = '''
"""A module."""

import math

__all__ = ["halve"]

LIMIT = 7


@math.cache
def halve(x: "B T", *, by: int = 2) -> "B":
    """Docstrings stay."""
    if x < LIMIT and not by:
        raise ValueError(f"x={x} is small")
    y = x / by
    return y if x is None else scale(y, x, dim=-1).sum()
'''


def changes(source: str) -> list[tuple[str, str]]:
    return [(mutant.operator, mutant.change) for mutant in mutants(source)]


def test_all_mutants_of_a_small_module():
    assert changes(SOURCE) == [
        ("statement left out", "LIMIT = 7 -> nothing"),
        ("constant", "7 -> 8"),
        ("constant", "2 -> 3"),
        ("and, or", "x < LIMIT and (not by) -> x < LIMIT or not by"),
        ("comparison", "x < LIMIT -> x <= LIMIT"),
        ("comparison", "x < LIMIT -> x >= LIMIT"),
        ("sign or negation", "not by -> by"),
        (
            "statement left out",
            "raise ValueError(f'x={x} is small') -> nothing",
        ),
        ("text", "'x=' -> 'x=x'"),
        ("text", "' is small' -> ' is smallx'"),
        ("statement left out", "y = x / by -> nothing"),
        ("arithmetic", "x / by -> x * by"),
        (
            "result left out",
            "return y if x is None else scale(y, x, dim=-1).sum() -> return None",
        ),
        (
            "condition",
            "y if x is None else scale(y, x, dim=-1).sum() -> "
            "scale(y, x, dim=-1).sum() if x is None else y",
        ),
        ("comparison", "x is None -> x is not None"),
        ("call left out", "scale(y, x, dim=-1).sum() -> scale(y, x, dim=-1)"),
        ("arguments swapped", "scale(y, x, dim=-1) -> scale(x, y, dim=-1)"),
        ("argument left out", "dim=-1 -> nothing"),
        ("sign or negation", "-1 -> 1"),
        ("constant", "1 -> 2"),
    ]


def test_a_mutant_changes_one_place():
    right = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants(SOURCE):
        if mutant.operator == "statement left out":
            continue  # becomes two lines
        wrong = ast.unparse(apply(SOURCE, mutant.number)).splitlines()
        assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1, mutant


def test_what_a_test_has_to_execute_to_meet_a_mutant():
    found = {mutant.change: mutant for mutant in mutants(SOURCE)}
    assert found["7 -> 8"].lines == ()
    default = found["2 -> 3"]
    assert (default.parameter, default.function) == ("by", "halve")
    assert default.lines == tuple(range(13, 18))
    assert found["x / by -> x * by"].lines == (16,)
    assert found["x / by -> x * by"].text == "y = x / by"


def test_what_makes_no_difference_is_left_alone():
    assert changes("f(max(a, b), zip(a, b, strict=True))") == [
        ("statement left out", "f(max(a, b), zip(a, b, strict=True)) -> nothing"),
        (
            "arguments swapped",
            "f(max(a, b), zip(a, b, strict=True)) -> "
            "f(zip(a, b, strict=True), max(a, b))",
        ),
        ("arguments swapped", "zip(a, b, strict=True) -> zip(b, a, strict=True)"),
    ]
    # Two axes change places, two arguments that are alike change nothing.
    kinds = [kind for kind, _ in changes("f(x.transpose(1, 2), ones(y, y))")]
    assert kinds.count("arguments swapped") == 1


def test_methods_have_the_name_of_their_class():
    source = "class A:\n    def f(self):\n        def g():\n            return 1\n"
    assert {mutant.function for mutant in mutants(source)} == {"A.f"}


def test_a_number_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match=r"^number=2 is none of the mutants"):
        apply("x = 1", 2)
