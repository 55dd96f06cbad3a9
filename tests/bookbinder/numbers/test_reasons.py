"""A reason that is a list has as many things as the number that it is for."""

from pathlib import Path

import pytest

from bookbinder.numbers.backing import number_problems
from bookbinder.reading.pages import read_page


def refused(words: str, reason: str) -> list[str]:
    text = f'<!-- given: "{words}": {reason} -->\n{words} of them.\n'
    return [
        each.reason for each in number_problems(read_page(text, "p.md"), {}, Path())
    ]


@pytest.mark.parametrize(
    ("reason", "things"),
    [
        ("window, causal and everything", 3),
        ("runs, outputs, and pairs of listings", 3),
        ("a key and a value", 2),
        ("The, cat, sat, on", 4),
    ],
)
def test_a_list_is_counted(reason: str, things: int) -> None:
    names = {2: "Two", 3: "Three", 4: "Four"}
    for count, name in names.items():
        wanted = f'"{name} things": the reason given lists {things}'
        assert refused(f"{name} things", reason) == [wanted] * (count != things)


@pytest.mark.parametrize(
    "reason",
    [
        "as the run has it, and the table",
        "two forward, four backward",
        "it was measured by others and is quoted from their table",
        "a, b; c, d",
        "halves [3, 4], 5",
        "they follow",
    ],
)
def test_what_is_no_list_is_none(reason: str) -> None:
    assert refused("Seven things", reason) == []
