"""The first cell of a row is its heading where the corner of the table is empty."""

from collections.abc import Callable

from bs4 import BeautifulSoup

from bookbinder.wayfinding.row_headings import RowHeadingExtension


def test_rows_have_headings_below_an_empty_corner(
    made: Callable[..., BeautifulSoup],
) -> None:
    soup = made(
        "||a|b|\n|-|-|-|\n|*one*|1|2|\n|two|3|4|\n||5|6|\n\n|name|a|\n|-|-|\n|one|1|\n",
        RowHeadingExtension(),
    )
    headings = [cell.get_text() for cell in soup.select('tbody th[scope="row"]')]
    assert headings == ["one", "two"]
    assert len(soup.select("tbody th")) == 2
    cells = [cell.get_text() for cell in soup.select("tbody td")]
    assert cells == ["1", "2", "3", "4", "", "5", "6", "one", "1"]
