"""Every number that a reader meets is read, and nothing that only looks like one."""

import math

import pytest

from bookbinder.numbers.numerals import passages
from bookbinder.reading.pages import read_page


def numbers(text: str) -> list[tuple[str, float]]:
    found = passages(read_page(text, "page.md"))
    return [
        (number.text, number.value)
        for passage in found
        for number in passage.numbers
        if number.kind != "constant"
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It has 1,050,624 parameters.", [("1,050,624", 1050624)]),
        ("From -2 to −3.5.", [("-2", -2), ("−3.5", -3.5)]),
        ("A 3-4 split, 5x.", [("3", 3), ("4", 4), ("5", 5)]),
        ("About .25 of it.", [(".25", 0.25)]),
        ("At most 1e-5.", [("1e-5", 1e-5)]),
        ("Two heads, forty-eight keys.", [("Two", 2), ("forty-eight", 48)]),
        ("Two thirds, a third of it.", [("Two thirds", 2 / 3), ("third", 1 / 3)]),
        ("Half, twice, ½.", [("Half", 0.5), ("twice", 2), ("½", 0.5)]),
        ("Some 2.5 million.", [("2.5 million", 2.5e6)]),
        ("Four hundred of them.", [("Four hundred", 400)]),
        ("Here $d_k = 4$ and $x^2$.", [("4", 4)]),
        ("Here $10000^{-2i/D}$.", [("10000", 10000)]),
        ("It calls `f(3)` here.", [("3", 3)]),
        ("- 16 in a list", [("16", 16)]),
        ("1. the first, 2 of", [("2", 2)]),
        ("| a | 7 |\n|---|---|\n| b | 8 |", [("7", 7), ("8", 8)]),
        ("![A map of 9 cells.](../assets/figures/page/3.svg)", [("9", 9)]),
        ("[a link of 5](page-6.md)", [("5", 5)]),
        ("# 11 heads", [("11", 11)]),
        ("Every eighth name, the eighth name.", [("eighth", 1 / 8)]),
    ],
)
def test_numbers_are_read(text: str, wanted: list[tuple[str, float]]) -> None:
    assert numbers(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "The third row, a third row, and one of them.",
        "In half precision, or double precision.",
        '<!-- given: "9 lives": of a cat -->',
        "```python\nx = 3\n```",
        "```mermaid\nflowchart LR\n```",
        "# --`8<--`",
        "$d_k + 1$ and $x_0^2$ and $\\pi$",
        "A tenth-rate idea, [x](y3.md)",
    ],
)
def test_what_is_no_number_is_not_read(text: str) -> None:
    assert numbers(text) == []


def test_the_digits_beside_symbols_are_constants() -> None:
    text = r"$\frac12 x_0^2 + 2D$, $10^{-2/4} = d_3$, $\text{4 of}\\[1.1em] a$, $T = 7$"
    (passage,) = passages(read_page(text, "page.md"))
    constants = [each.text for each in passage.numbers if each.kind == "constant"]
    assert constants == ["1", "2", "0", "2", "2", "3"]


def test_a_number_in_a_name_has_no_size() -> None:
    ((text, value),) = numbers("As GPT-2 does.")
    assert text == "GPT-2"
    assert math.isnan(value)


def test_a_paragraph_of_many_lines_is_one_passage() -> None:
    first, second = passages(read_page("One of\n2 lines.\n\nAnother.\n", "page.md"))
    assert (first.text, first.line, second.line) == ("One of 2 lines.", 1, 4)


def test_a_passage_knows_its_headings_and_its_columns() -> None:
    page = read_page("# A\n\n## B\n\n### C\n\n| keys |\n|---|\n| 2 |\n", "page.md")
    row = passages(page)[-1]
    assert (row.part, row.section, row.title, row.labels) == (3, 5, "C", ("keys",))


def test_words_beside_a_number_end_with_the_sentence() -> None:
    (passage,) = passages(read_page("Keys end. It has 4 heads: many keys.", "page.md"))
    (number,) = passage.numbers
    assert (number.before, number.after) == (("has", "it"), ("heads",))
