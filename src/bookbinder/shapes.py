"""Compare the shapes that diagrams draw with the tensors of a pass.

A shape is a list of sizes in parentheses, such as ``(B, T, 3D)``. In the label of a
node it belongs to the variable named like the node; elsewhere, to the word before it.

A diagram with a shape has a program in its comments, with a line of Python after each
``%%``. It runs the library with sizes that all differ. For each node with a shape, it
assigns the tensor to a variable named like the node. It may call functions that the
page defines.
"""

import ast
import math
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

import tested_transformer
from bookbinder.page import Page, Problem
from bookbinder.tracing import CODE_OF_PAGE, traced

# Pairwise different, so that no letter can stand for another. Heads divide the width,
# heads of keys divide heads, and rotary turns pairs of features.
SIZES = {
    **{"B": 2, "H_kv": 3, "d_k": 4, "T": 5, "H": 6, "S": 7},
    **{"d_v": 9, "L": 10, "V": 11, "C": 13, "d_ff": 17, "D": 24},
}

_SIZE = r"(?:(?:\d+ ?)?[A-Za-z]\w*|\d+)"
# One size at least is a letter: words in parentheses are no shape, nor is ``f(x)``.
_SHAPE = re.compile(
    r"(?<!\w)\((?=[^)]*(?<![A-Za-z_])[A-Za-z](?:_\w+)?(?!\w))"
    rf"{_SIZE}(?:(?:,| \*) {_SIZE})*,?\)"
)
# A comment that begins as a link does is one: bookbinder.drawing.links reads it.
_LINKS = re.compile(r"^[ \t]*%% \[.*$", re.MULTILINE)
_PROGRAM = re.compile(r"^[ \t]*%% ?(?P<code>.*)$", re.MULTILINE)
_SPOKEN = re.compile(r"^[ \t]*acc(?:Title|Descr)\s*(?::.*|\{[^}]*\})", re.MULTILINE)
_NODE = re.compile(r'(?P<name>[A-Za-z]\w*)(?P<label>[\[({>/\\]+"(?P<text>[^"]*)")')
_LAST_WORD = re.compile(r"(\w+)\W*$")
_LETTER = re.compile(r"[A-Za-z]\w*")


class Label(NamedTuple):
    """Words with shapes.

    Args:
        name: The variable with these shapes; a tuple if there are several.
        shapes: The shapes as written.
        line: The line of the label, from 0 within the diagram.
    """

    name: str
    shapes: list[str]
    line: int


@dataclass
class Diagram:
    """A diagram: labels with shapes, shapes for screen readers, and program lines."""

    labels: list[Label] = field(default_factory=list[Label])
    spoken: list[Label] = field(default_factory=list[Label])
    program: dict[int, str] = field(default_factory=dict[int, str])


def diagram_problems(page: Page) -> list[Problem]:
    """Return a problem for each wrong shape in the diagrams of a page."""
    return [
        Problem(page.path, fence.line + 1 + line, reason)
        for fence in page.fences
        if fence.info == "mermaid"
        for line, reason in _problems(read_diagram(fence.text), page)
    ]


def read_diagram(source: str) -> Diagram:
    """Read a diagram, ignoring everything without a shape."""
    diagram = Diagram()

    def line_of(at: int) -> int:
        return source.count("\n", 0, at)

    rest = _LINKS.sub(_blank, source)
    for line in _PROGRAM.finditer(rest):
        diagram.program[line_of(line.start("code"))] = line["code"]
    rest = _PROGRAM.sub(_blank, rest)
    for words in _SPOKEN.finditer(rest):
        if shapes := _SHAPE.findall(words[0]):
            diagram.spoken.append(Label("", shapes, line_of(words.start())))
    rest = _SPOKEN.sub(_blank, rest)
    for node in _NODE.finditer(rest):
        if shapes := _SHAPE.findall(node["text"]):
            label = Label(node["name"], shapes, line_of(node.start()))
            diagram.labels.append(label)
    rest = _NODE.sub(lambda node: node["name"] + " " * len(node["label"]), rest)
    for shape in _SHAPE.finditer(rest):
        word = _LAST_WORD.search(rest, 0, shape.start())
        label = Label(word[1] if word else "", [shape[0]], line_of(shape.start()))
        diagram.labels.append(label)
    return diagram


def _blank(text: re.Match[str]) -> str:
    """Return white space with the same length and lines as the match."""
    return re.sub(r"[^\n]", " ", text[0])


def _problems(diagram: Diagram, page: Page) -> Iterator[tuple[int, str]]:
    labels = [*diagram.labels, *diagram.spoken]
    if labels and not diagram.program:
        first = min(labels, key=lambda label: label.line)
        yield (
            first.line,
            f"{first.shapes[0]} is a shape, but this diagram has no program: "
            "write it in lines that begin with %%",
        )
    elif labels:
        try:
            variables = _run(diagram, page)
        except Exception as error:
            what = error.msg if isinstance(error, SyntaxError) else error
            reason = f"the pass of this diagram: {type(error).__name__}: {what}"
            if isinstance(error, NameError):
                reason += ": import it above, in a line %% from ... import ..."
            yield _line_of(error, diagram), reason
            return
        sizes = SIZES | {n: size for n, size in variables.items() if type(size) is int}
        unclear = [*_unclear_sizes(diagram, sizes)]
        yield from unclear or _wrong_shapes(diagram, variables, sizes)


def _run(diagram: Diagram, page: Page) -> dict[str, Any]:
    """Run the program with the diagram's line numbers; return its variables."""
    library = {n: getattr(tested_transformer, n) for n in tested_transformer.__all__}
    torchs = {"torch": torch, "nn": nn, "F": F, "rand": torch.rand}
    provided = {**library, **torchs, "traced": traced, **SIZES}
    names: dict[str, Any] = {**provided}
    lines = range(max(diagram.program) + 1)
    tree = ast.parse("\n".join(diagram.program.get(line, "") for line in lines))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for definition in _definitions(page, used - names.keys()):
        exec(compile(definition, CODE_OF_PAGE, "exec"), names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(tree, "<diagram>", "exec"), names)
    return {n: v for n, v in names.items() if n not in provided or provided[n] is not v}


def _definitions(page: Page, missing: set[str]) -> Iterator[ast.Module]:
    """Return the functions of a page that a program calls, after their imports."""
    for chain in page.chains if missing else ():
        tree = ast.parse("".join(block.code for block in chain.blocks))
        functions: list[ast.stmt] = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name in missing
        ]
        imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        if functions:
            yield ast.Module([*imports, *functions], [])


def _line_of(error: Exception, diagram: Diagram) -> int:
    """Return the line of the program at which an error was raised."""
    if isinstance(error, SyntaxError):
        return (error.lineno or 1) - 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [(f.lineno or 1) - 1 for f in frames if f.filename == "<diagram>"]
    return [min(diagram.program), *lines][-1]


def _unclear_sizes(
    diagram: Diagram, sizes: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    """Yield letters without a size, sizes without a letter, and equal sizes."""
    first: dict[str, int] = {}
    for label in diagram.labels:
        for shape in label.shapes:
            if any(part.isdigit() and part != "1" for part in _parts(shape)):
                yield label.line, f"{shape}: a size other than 1 is a letter"
            for letter in _LETTER.findall(shape):
                first.setdefault(letter, label.line)
    for letter in first.keys() - sizes.keys():
        reason = f"{letter} is no size of the legend, and the pass sets none"
        yield first[letter], reason
    known = sorted((sizes[letter], letter) for letter in first.keys() & sizes.keys())
    for (size, one), (other_size, other) in pairwise(known):
        if size == other_size:
            line = max(first[one], first[other])
            yield line, f"{one} and {other} are both {size}: the sizes must differ"


def _wrong_shapes(
    diagram: Diagram, variables: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    letters = {size: letter for letter, size in sizes.items()}
    for name, shapes, line in diagram.labels:
        draws = f"{name} draws"
        if name not in variables:
            yield line, f"{draws} {shapes[0]}, but the pass makes no {name}"
            continue
        tensors = [variables[name]] if len(shapes) == 1 else [*variables[name]]
        if len(tensors) != len(shapes):
            yield line, f"{draws} {len(shapes)} shapes, but is {len(tensors)} tensors"
            continue
        for shape, tensor in zip(shapes, tensors, strict=True):
            expected = tuple(_size(part, sizes) for part in _parts(shape))
            # Several tensors may share one shape.
            for one in tensor if isinstance(tensor, tuple) else [tensor]:
                if (seen := _shape(one)) != expected:
                    read = ", ".join(letters.get(size, str(size)) for size in seen)
                    reason = f"{draws} {shape}, but the pass gives ({read}): {seen}"
                    yield line, reason
    drawn = {shape for label in diagram.labels for shape in label.shapes}
    for label in diagram.spoken:
        for shape in label.shapes:
            if shape not in drawn:
                yield label.line, f"{shape} is read out, but the diagram draws none"


def _parts(shape: str) -> list[str]:
    return shape.strip("(,)").split(", ")


def _size(part: str, sizes: Mapping[str, int]) -> int:
    """Return the value of one size, such as ``3D`` or ``B * H`` or ``1``."""
    factors = re.findall(r"\d+|[A-Za-z]\w*", part)
    return math.prod(int(f) if f.isdigit() else sizes[f] for f in factors)


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, or of nested lists of numbers."""
    if isinstance(value, list) and value:
        return (len(value), *_shape(value[0]))
    return tuple(getattr(value, "shape", ()))
