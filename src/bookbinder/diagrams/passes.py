"""Run the program of a diagram, and compare the shapes that the diagram shows.

A diagram with a shape has a program in its comments, with a line of Python after each
``%%``. It runs the library with sizes that all differ. For each node with a shape, it
assigns the tensor to a variable named like the node. It may call functions that the
page defines.
"""

import ast
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import tested_transformer
from bookbinder.diagrams.labels import Diagram, read_diagram
from bookbinder.diagrams.shapes import shape_problems
from bookbinder.diagrams.sizes import SIZES
from bookbinder.diagrams.tracing import PAGE, traced
from bookbinder.page import Page, Problem

__all__ = ["diagram_problems"]


def diagram_problems(page: Page) -> list[Problem]:
    """Return a problem for each wrong shape in the diagrams of a page."""
    return [
        Problem(page.path, fence.line + 1 + at, reason)
        for fence in page.fences
        if fence.info == "mermaid"
        for at, reason in _problems(read_diagram(fence.text), page)
    ]


def _problems(diagram: Diagram, page: Page) -> Iterator[tuple[int, str]]:
    if not diagram.labels and not diagram.spoken:
        return
    if not diagram.program:
        first = min(diagram.labels + diagram.spoken, key=lambda label: label.line)
        yield (
            first.line,
            f"{first.shapes[0]} is a shape, but this diagram has no program: "
            "write it in lines that begin with %%",
        )
        return
    try:
        made = _run(diagram, page)
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        reason = f"the pass of this diagram: {type(error).__name__}: {what}"
        if isinstance(error, NameError):
            reason += ": import it above, in a line %% from ... import ..."
        yield _line_of(error, diagram), reason
        return
    yield from shape_problems(diagram, made)


def _run(diagram: Diagram, page: Page) -> dict[str, Any]:
    """Run the program with the diagram's line numbers; return its variables."""
    given = {
        **{
            name: getattr(tested_transformer, name)
            for name in tested_transformer.__all__
        },
        **{"torch": torch, "nn": nn, "F": F, "rand": torch.rand, "traced": traced},
        **SIZES,
    }
    names = dict(given)
    lines = [""] * (diagram.program[-1][0] + 1)
    for number, line in diagram.program:
        lines[number] = line
    tree = ast.parse("\n".join(lines))
    wanted = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for definition in _definitions(page, wanted - names.keys()):
        exec(compile(definition, PAGE, "exec"), names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(tree, "<diagram>", "exec"), names)
    return {
        name: value
        for name, value in names.items()
        if name not in given or given[name] is not value
    }


def _definitions(page: Page, wanted: set[str]) -> Iterator[ast.Module]:
    """Return the functions of a page that a program calls, after their imports."""
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


def _line_of(error: Exception, diagram: Diagram) -> int:
    """Return the line of the program at which an error was raised."""
    if isinstance(error, SyntaxError):
        return (error.lineno or 1) - 1
    line, trace = diagram.program[0][0], error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<diagram>":
            line = trace.tb_lineno - 1
        trace = trace.tb_next
    return line
