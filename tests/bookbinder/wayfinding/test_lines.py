"""Short code stays in one line, and a cell of prose is wide enough to be read."""

from collections.abc import Callable

from bs4 import BeautifulSoup

from bookbinder.wayfinding.lines import LineExtension


def test_long_code_and_cells_of_prose_are_marked(
    made: Callable[..., BeautifulSoup],
) -> None:
    table = "|a|b|\n|-|-|\n|{}|`one two three four five six seven`|\n\n"
    soup = made(
        table.format("words enough *to be* wide for reading")
        + table.format("5 words 3 `a_b` of 2")
        + "A shape `(B, H)`, *of (2, 3)*; (or, this once, words).",
        LineExtension(),
    )
    assert [cell.get("class") for cell in soup.select("td")] == [
        ["prose"],
        None,
        None,
        None,
    ]
    assert [code.get("class") for code in soup.select("code")] == [
        ["long"],
        None,
        ["long"],
        None,
    ]
    text = soup.get_text()
    assert "(B, H), of (2,\u00a03); (or, this once, words)." in text
