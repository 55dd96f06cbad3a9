"""The list of works is read line by line, and says which of them it cannot read."""

import pytest

from bookbinder.numbers.works import author_problems, read_works
from bookbinder.reading.pages import read_page

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


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("- Ackley, Hinton and Sejnowski, *A Learning Algorithm*, 1985", "Sejnowski"),
        ("- Jianlin Su et al., *RoFormer*, 2021", "Su"),
        ("Radford et al., *Language Models are*, 2019, and Ba, 2016", "Radford"),
        ("Graves et al., *Neural*, 2014, and Su et al., *RoFormer*", "Su"),
    ],
)  # fmt: skip
def test_names_before_a_title_are_of_its_authors(right: str, wrong: str) -> None:
    def problems(text: str) -> list[str]:
        page = read_page(f"# A page\n\n{text}\n", "page.md")
        return [str(problem) for problem in author_problems(page)]

    assert problems(right) == []
    (problem,) = problems(
        right.replace(f"{wrong} et", "Shaw et").replace(f"{wrong},", "Shaw,")
    )
    assert problem.startswith("page.md:3: Shaw is no author of ")
