"""A claim of a bound has the bound that is asked about, and its direction."""

import ast

import pytest

from bookbinder.reading.claims import claim_problems


def problems(code: str) -> list[tuple[int, str]]:
    return [*claim_problems(ast.parse(code))]


@pytest.mark.parametrize(
    "code",
    [
        'print("above 0.97:", share > 0.97)',
        'print(f"the largest is over 75 %: {0.75 < share}")',
        'level = "less than 1e-6" if gap <= 1e-6 else "more"',
        'print("idlest below 1/50:", idlest < 0.02)',
        'print("after 60 steps, at most 0.1:", loss < 0.1)',
        'print("more than 2 times:", after > 2 * before)',
        'print("over 1 and below 4:", 1 < middle < 4)',
        'print("above 3 shares", len(shares))',
    ],
)
def test_what_is_asked_may_be_said(code: str) -> None:
    assert problems(code) == []


@pytest.mark.parametrize(
    ("code", "claim", "asked"),
    [
        ('print("above 0.97:", share > 0.79)', "above 0.97", "share > 0.79"),
        ('print("above 0.97:", share < 0.97)', "above 0.97", "share < 0.97"),
        ('print(f"over 75 %: {0.75 > share}")', "over 75 %", "0.75 > share"),
        ('s = "under 85 %" if right < 0.58 else ""', "under 85 %", "right < 0.58"),
        ('print("below 1/50:", idlest < 0.2)', "below 1/50", "idlest < 0.2"),
        ('print("at least 99:", found <= 99)', "at least 99", "found <= 99"),
    ],
)
def test_what_is_not_may_not(code: str, claim: str, asked: str) -> None:
    assert problems(f"x = 1\n{code}") == [
        (2, f"{claim!r} is said, and {asked} is asked")
    ]
