"""The list of works is read line by line, and says which of them it cannot read."""

import pytest

from bookbinder.numbers.works import read_works

HEAD = "What it is.\n\n\n"


def test_a_work_has_a_year_names_a_title_and_sections() -> None:
    (work,) = read_works(f"{HEAD}2017 | Vaswani, Shazeer | A Title | 3.2, table 1\n")
    assert work.names == ("Vaswani", "Shazeer")
    assert work.places == {"3.2", "table 1"}


@pytest.mark.parametrize("line", ["2017 | Vaswani | A Title", "Vaswani | 2017 | A |"])
def test_a_line_that_is_no_work_is_named(line: str) -> None:
    wanted = r"works\.txt:5: wanted year \| names \| title \| sections"
    with pytest.raises(ValueError, match=wanted):
        read_works(f"{HEAD}2017 | Vaswani | A Title |\n{line}\n")
