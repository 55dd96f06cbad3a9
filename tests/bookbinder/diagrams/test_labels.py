"""Shapes are found wherever a diagram has them, and words are left alone."""

import pytest

from bookbinder.diagrams.labels import Label, read_diagram

CHART = """flowchart TB
    accTitle: A title
    accDescr: From (T, D) to there.
    %% X = rand(T, D)
    %% if True:
    %%     Y = X.mT
    subgraph S["all: (T, S)"]
    X["X: (T, D)"] -- "by W: (D, D)" --> Y(["q: (T, 1), v:
    (S, D)"]) --> Z("end (of it)")
    end
    X -->|"(T, D)"| P(("f(x)"))"""


def test_every_shape_belongs_to_a_variable() -> None:
    diagram = read_diagram(CHART)
    assert sorted(diagram.labels, key=lambda label: label.line) == [
        Label("S", ["(T, S)"], 6),
        Label("X", ["(T, D)"], 7),
        Label("Y", ["(T, 1)", "(S, D)"], 7),
        Label("W", ["(D, D)"], 7),
        Label("X", ["(T, D)"], 10),
    ]
    assert diagram.spoken == [Label("", ["(T, D)"], 2)]


def test_the_program_keeps_its_lines_and_its_indentation() -> None:
    program = read_diagram(f"{CHART}\n%% [A link](page.md)").program
    assert program == [(3, "X = rand(T, D)"), (4, "if True:"), (5, "    Y = X.mT")]


def test_a_description_of_several_lines_is_read_out_too() -> None:
    diagram = read_diagram("sequenceDiagram\naccDescr {\n  one\n  (B, T)\n}\n")
    assert [label.shapes for label in diagram.spoken] == [["(B, T)"]]
    assert not diagram.labels


@pytest.mark.parametrize(
    "text",
    ["(B, T)", "(D)", "(T, 1)", "(3D, D)", "(4 D)", "(B * H, T, d_k)", "(B, vocab)"],
)
def test_a_shape_is_sizes_in_parentheses(text: str) -> None:
    assert read_diagram(f'A["x: {text}"]').labels == [Label("A", [text], 0)]


@pytest.mark.parametrize(
    "text", ["()", "(a b)", "(x + y)", "B, T", "(first)", "(keys, values)", "(2)"]
)
def test_words_are_no_shape(text: str) -> None:
    assert read_diagram(f'A["x: {text}"]').labels == []
