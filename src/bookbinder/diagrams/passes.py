"""Run the pass that stands behind a diagram, and hold the diagram against it.

A diagram with a shape has a program in its comments, a line of Python behind each
``%%``. It runs the library, with sizes that all differ, and gives each node's tensor
to the variable of that node's name. Functions that the page defines may be called.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import tested_transformer
from bookbinder.diagrams.arrows import arrow_problems
from bookbinder.diagrams.flowcharts import (
    SHAPE,
    Flowchart,
    FlowchartError,
    Node,
    read_flowchart,
)
from bookbinder.diagrams.shapes import shape_problems
from bookbinder.diagrams.sizes import SIZES
from bookbinder.diagrams.tracing import PAGE, Flow, traced
from bookbinder.page import Page, Problem

__all__ = ["diagram_problems"]

_WORD = re.compile(r"[A-Za-z]\w+(?:-\w+)*")
_ENDING = re.compile(r"(?:e|es|s|d|ed|ing|ly)$")


def diagram_problems(page: Page) -> list[Problem]:
    """Find what the diagrams of a page draw otherwise than it is."""
    problems: list[Problem] = []
    for start, end in _fences(page):
        source = "\n".join(page.lines[start : end - 1])
        rest = "\n".join(page.lines[:start] + page.lines[end:])
        try:
            chart = read_flowchart(source)
        except FlowchartError as error:
            found = [(error.line, str(error))] if SHAPE.search(source) else []
        else:
            found = [
                *_word_problems(chart, rest),
                *_answer_problems(chart),
                *_untold_problems(chart),
                *_pass_problems(chart, page),
            ]
        problems += [Problem(page.path, start + 1 + at, reason) for at, reason in found]
    return problems


def _fences(page: Page) -> Iterator[tuple[int, int]]:
    """Give the first and the last line of each diagram, fences included."""
    start = 0
    for number, line in enumerate(page.lines, start=1):
        if not start and line.strip() == "```mermaid":
            start = number
        elif start and line.startswith("```"):
            yield start, number
            start = 0


def _word_problems(chart: Flowchart, rest: str) -> Iterator[tuple[int, str]]:
    """Find words of a drawing that neither its description nor its page uses."""
    spoken = " ".join(text for _, text in chart.spoken)
    known = {_stem(word) for word in _WORD.findall(f"{rest} {spoken} yes no")}
    for line, label in chart.labels:
        for word in _WORD.findall(SHAPE.sub("", label).replace("<br/>", " ")):
            if not known & {_stem(word), *map(_stem, word.split("-"))}:
                yield line, f"the diagram says {word!r}, which the page never does"


def _answer_problems(chart: Flowchart) -> Iterator[tuple[int, str]]:
    """Find a question with two answers of a kind, or one that is only affirmed."""
    for node in chart.nodes:
        answers = [arrow for arrow in chart.arrows if arrow.start == node]
        said = [arrow.label for arrow in answers]
        for arrow in answers:
            if arrow.label in ("yes", "no") and said.count(arrow.label) > 1:
                yield arrow.line, f"two arrows from {node} say {arrow.label!r}"
            elif arrow.label == "yes" and "no" not in said:
                yield arrow.line, f"an arrow from {node} says 'yes', and none says 'no'"


def _untold_problems(chart: Flowchart) -> Iterator[tuple[int, str]]:
    """Find bare arrows that the description does not tell, where no pass is run.

    Who hears the description learns of each of them in one clause that names both ends.
    """
    said = [text for _, text in chart.spoken[1:]]
    clauses = [_named(clause) for text in said for clause in re.split("[.;]", text)]
    shaped = any(SHAPE.search(label) for _, label in chart.labels)
    if chart.code or shaped or not clauses:
        return
    titles = {name: _title(node) for name, node in chart.nodes.items()}
    for arrow in chart.arrows:
        ends = titles[arrow.start], titles[arrow.end]
        wanted = _named(" ".join(ends))
        if not arrow.label and not any(wanted <= clause for clause in clauses):
            yield (
                arrow.line,
                f"accDescr has no sentence with both ends of this arrow, {ends[0]!r} "
                f"and {ends[1]!r}",
            )


def _title(node: Node) -> str:
    """Give the first line of a box, without what makes it bold."""
    return re.sub("[`*]", "", node.label.partition("<br/>")[0])


def _named(text: str) -> set[str]:
    return {_stem(word) for word in _WORD.findall(text)}


def _stem(word: str) -> str:
    return _ENDING.sub("", word.lower())


def _pass_problems(chart: Flowchart, page: Page) -> Iterator[tuple[int, str]]:
    drawn = [(line, label) for line, label in chart.labels if SHAPE.search(label)]
    if not chart.code:
        for line, label in drawn[:1]:
            yield (
                line,
                f"{label!r} has a shape, but no pass stands behind this diagram: "
                f"write it in lines that begin with %%",
            )
        return
    flow, names = Flow(), _names()
    given = dict(names)
    try:
        _run(chart, page, names, flow)
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        reason = f"the pass of this diagram: {type(error).__name__}: {what}"
        if isinstance(error, NameError):
            reason += ": import it above, in a line %% from ... import ..."
        yield _line_of(error, chart), reason
        return
    made = {
        name: value
        for name, value in names.items()
        if name not in given or given[name] is not value
    }
    problems = [*shape_problems(chart, made)]
    bound = {name: made[name] for name in chart.nodes if name in made}
    yield from problems or arrow_problems(chart, bound, flow)


def _names() -> dict[str, Any]:
    library = {
        name: getattr(tested_transformer, name) for name in tested_transformer.__all__
    }
    tools = {"torch": torch, "nn": nn, "F": F, "rand": torch.rand, "traced": traced}
    return {**SIZES, **tools, **library}


def _run(chart: Flowchart, page: Page, names: dict[str, Any], flow: Flow) -> None:
    """Run the program, laid out on the lines that it has in the diagram."""
    lines = [""] * (chart.code[-1][0] + 1)
    for number, line in chart.code:
        lines[number] = line
    tree = ast.parse("\n".join(lines))
    wanted = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for definition in _definitions(page, wanted - names.keys()):
        exec(compile(definition, PAGE, "exec"), names)
    with torch.random.fork_rng(devices=[]), flow:
        torch.manual_seed(0)
        exec(compile(tree, "<diagram>", "exec"), names)


def _definitions(page: Page, wanted: set[str]) -> Iterator[ast.Module]:
    """Give the functions of a page that a pass calls, behind what they import."""
    for chain in page.chains:
        tree = ast.parse("".join(block.code for block in chain.blocks))
        functions: list[ast.stmt] = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name in wanted
        ]
        imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        if functions:
            yield ast.Module([*imports, *functions], [])


def _line_of(error: Exception, chart: Flowchart) -> int:
    """Find the line of the program at which an error arose."""
    if isinstance(error, SyntaxError):
        return (error.lineno or 1) - 1
    line, trace = chart.code[0][0], error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<diagram>":
            line = trace.tb_lineno - 1
        trace = trace.tb_next
    return line
