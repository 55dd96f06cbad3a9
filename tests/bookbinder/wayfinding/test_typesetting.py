"""Short code stays in one line, cells of prose are wide, and rows have headings."""

from tests.bookbinder.conftest import Render


def test_long_code_and_cells_of_prose_are_marked(rendered: Render) -> None:
    table = "|a|b|\n|-|-|\n|{}|`one two three four five six seven`|\n\n"
    soup = rendered(
        table.format("words enough *to be* wide for reading")
        + table.format("5 words 3 `a_b` of 2")
        + "A shape `(B, H)`, *of (2, 3)*; (or, this once, words).",
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


def test_long_code_breaks_between_the_parts_of_a_name(rendered: Render) -> None:
    name = "torch.nn.functional.scaled_dot_product_attention(q, k) < 1.5"
    soup = rendered(f"Call `{name}` or `causal_mask(length)`.")
    long, short = soup.select("code")
    assert long.get_text() == name
    assert "functional.<wbr/>scaled_<wbr/>dot_<wbr/>" in str(long)
    assert "attention(<wbr/>q, k)" in str(long)
    assert short.get_text() == "causal_mask(length)"
    assert not short.select("wbr")


def test_a_bracket_stays_with_the_formula_that_it_opens(rendered: Render) -> None:
    soup = rendered("YaRN ($s$) and *so on* [$t$], (a) $u$")
    formulas = soup.select("var")
    assert [str(formula.contents[0])[0] for formula in formulas] == ["(", "[", "<"]
    for formula in formulas:
        formula.decompose()
    assert soup.get_text() == "YaRN ) and so on ], (a) "


def test_rows_have_headings_below_an_empty_corner(rendered: Render) -> None:
    soup = rendered(
        "||a|b|\n|-|-|-|\n|*one*|1|2|\n|two|3|4|\n||5|6|\n\n|name|a|\n|-|-|\n|one|1|\n",
    )
    headings = [cell.get_text() for cell in soup.select('tbody th[scope="row"]')]
    assert headings == ["one", "two"]
    assert len(soup.select("tbody th")) == 2
    cells = [cell.get_text() for cell in soup.select("tbody td")]
    assert cells == ["1", "2", "3", "4", "", "5", "6", "one", "1"]


def test_a_bar_in_code_is_written_as_github_wants_it(rendered: Render) -> None:
    table = "|a|b|\n|-|-|\n|`x\\|y`|*`p \\|\\| q`*|\n\nIn text: `x\\|y`.\n"
    codes = [code.get_text() for code in rendered(table).select("code")]
    assert codes == ["x|y", "p || q", "x\\|y"]
