"""A flowchart is read whole, or refused."""

import pytest

from bookbinder.diagrams.flowcharts import SHAPE, FlowchartError, read_flowchart

CHART = """flowchart TB
    accTitle: A title
    accDescr: From (T, D) to there.
    %% X = rand(T, D)
    %% if True:
    %%     Y = X.mT
    X["X: (T, D)"] -- "turn" --> Y["Y: (D, T)"] --> Z("end")
    Y -->|a word| P(("+"))
    X -. dotted .-> P
    P"""


def test_boxes_arrows_and_what_is_on_them() -> None:
    chart = read_flowchart(CHART)
    assert {node.name: node.label for node in chart.nodes.values()} == {
        "X": "X: (T, D)",
        "Y": "Y: (D, T)",
        "Z": "end",
        "P": "+",
    }
    assert [(arrow.start, arrow.end, arrow.label) for arrow in chart.arrows] == [
        ("X", "Y", "turn"),
        ("Y", "Z", ""),
        ("Y", "P", "a word"),
        ("X", "P", "dotted"),
    ]
    assert {arrow.line for arrow in chart.arrows} == {6, 7, 8}
    assert chart.nodes["P"].line == 7


def test_the_program_keeps_its_lines_and_its_indentation() -> None:
    chart = read_flowchart(CHART)
    assert chart.code == [(3, "X = rand(T, D)"), (4, "if True:"), (5, "    Y = X.mT")]
    assert chart.spoken == [(1, "A title"), (2, "From (T, D) to there.")]


@pytest.mark.parametrize(
    "line", ['X["open --> Y', "X --- Y", 'X["a"] -- no end', "sequenceDiagram"]
)
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(FlowchartError) as caught:
        read_flowchart(f"flowchart TB\n    {line}")
    assert caught.value.line == 1
    assert str(caught.value).startswith("this line of a diagram is not understood: ")


@pytest.mark.parametrize(
    "text", ["(B, T)", "(D)", "(T, 1)", "(3D, D)", "(4 D)", "(B * H, T, d_k)", "(B,)"]
)
def test_a_shape_is_sizes_in_parentheses(text: str) -> None:
    assert SHAPE.fullmatch(text)


@pytest.mark.parametrize("text", ["()", "(a b)", "(x + y)", "B, T", "(T; D)"])
def test_what_is_no_shape(text: str) -> None:
    assert not SHAPE.fullmatch(text)
