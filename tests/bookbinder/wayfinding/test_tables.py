"""A table has headings of rows below an empty corner, and bars in code."""

from collections.abc import Callable

from bs4 import BeautifulSoup

from bookbinder.wayfinding.tables import TableExtension


def test_rows_have_headings_below_an_empty_corner(
    made: Callable[..., BeautifulSoup],
) -> None:
    soup = made(
        "||a|b|\n|-|-|-|\n|*one*|1|2|\n|two|3|4|\n||5|6|\n\n|name|a|\n|-|-|\n|one|1|\n",
        TableExtension(),
    )
    headings = [cell.get_text() for cell in soup.select('tbody th[scope="row"]')]
    assert headings == ["one", "two"]
    assert len(soup.select("tbody th")) == 2
    cells = [cell.get_text() for cell in soup.select("tbody td")]
    assert cells == ["1", "2", "3", "4", "", "5", "6", "one", "1"]


def test_a_bar_in_code_is_written_as_github_wants_it(
    made: Callable[..., BeautifulSoup],
) -> None:
    table = "|a|b|\n|-|-|\n|`x\\|y`|*`p \\|\\| q`*|\n\nIn text: `x\\|y`.\n"
    codes = [code.get_text() for code in made(table, TableExtension()).select("code")]
    assert codes == ["x|y", "p || q", "x\\|y"]
