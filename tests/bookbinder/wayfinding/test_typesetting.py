"""Short code stays in one line, cells of prose are wide, and rows have headings."""

from collections.abc import Callable
from xml.etree.ElementTree import Element

from bs4 import BeautifulSoup
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor

from bookbinder.wayfinding.typesetting import TypesettingExtension


def test_long_code_and_cells_of_prose_are_marked(
    made: Callable[..., BeautifulSoup],
) -> None:
    table = "|a|b|\n|-|-|\n|{}|`one two three four five six seven`|\n\n"
    soup = made(
        table.format("words enough *to be* wide for reading")
        + table.format("5 words 3 `a_b` of 2")
        + "A shape `(B, H)`, *of (2, 3)*; (or, this once, words).",
        TypesettingExtension(),
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
    assert "(B, H), of (2,\u00a03); (or, this once, words)." in soup.get_text()


def test_long_code_breaks_between_the_parts_of_a_name(
    made: Callable[..., BeautifulSoup],
) -> None:
    name = "torch.nn.functional.scaled_dot_product_attention(q, k) < 1.5"
    soup = made(f"Call `{name}` or `causal_mask(length)`.", TypesettingExtension())
    long, short = soup.select("code")
    assert long.get_text() == name
    assert "functional.<wbr/>scaled_<wbr/>dot_<wbr/>" in str(long)
    assert "attention(<wbr/>q, k)" in str(long)
    assert short.get_text() == "causal_mask(length)"
    assert not short.select("wbr")


class _Formulas(TypesettingExtension):
    """Make formulas of code first, as the drawing does of TeX."""

    def extendMarkdown(self, md: Markdown) -> None:
        super().extendMarkdown(md)
        md.treeprocessors.register(_Drawn(md), "drawn", 15)


class _Drawn(Treeprocessor):
    def run(self, root: Element) -> None:
        for code in root.iter("code"):
            code.tag = "var"


def test_a_bracket_stays_with_the_formula_that_it_opens(
    made: Callable[..., BeautifulSoup],
) -> None:
    soup = made("YaRN (`s`) and *so on* [`t`], (a) `u`", _Formulas())
    assert [formula.get_text() for formula in soup.select("var")] == ["(s", "[t", "u"]
    assert soup.get_text() == "YaRN (s) and so on [t], (a) u"


def test_rows_have_headings_below_an_empty_corner(
    made: Callable[..., BeautifulSoup],
) -> None:
    soup = made(
        "||a|b|\n|-|-|-|\n|*one*|1|2|\n|two|3|4|\n||5|6|\n\n|name|a|\n|-|-|\n|one|1|\n",
        TypesettingExtension(),
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
    codes = [
        code.get_text() for code in made(table, TypesettingExtension()).select("code")
    ]
    assert codes == ["x|y", "p || q", "x\\|y"]
