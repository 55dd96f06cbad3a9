"""Compare outputs as numbers, and update those of a page.

Text, integers, truth values, shapes, nan and inf must be equal. A number with a decimal
part or an exponent agrees within a unit of its last printed digit, or within the
tolerance that its output declares.
"""

import difflib
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from bookbinder.evidence import Evidence
from bookbinder.page import (
    EXPECTED,
    Block,
    Chain,
    Output,
    Page,
    PageError,
    Problem,
    Tolerance,
    invisible,
    load_page,
    split_lines,
)
from bookbinder.running.figures import same_drawing
from bookbinder.running.state import WRITTEN
from bookbinder.writing import write_whole

# A separate number: not the 2 in conv2d, in 10.1.1 or in v2.
_DECIMAL = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.]*\w)"
)
_REMEDY = "undo the change that did this, or make outputs"


def agrees(shown: str, printed: str, tolerance: Tolerance) -> bool:
    """Return whether a line that a page shows agrees with the line of a run."""
    if shown == printed:
        return True
    ours, theirs = _DECIMAL.findall(shown), _DECIMAL.findall(printed)
    return _text(shown) == _text(printed) and all(
        _near(one, other, tolerance) for one, other in zip(ours, theirs, strict=True)
    )


def _text(line: str) -> list[str]:
    """Return the text between numbers; spaces may shrink where a number is wider."""
    first, *others = _DECIMAL.split(line.rstrip())
    return [first.rstrip(), *(part.strip() for part in others)]


def _near(shown: str, printed: str, tolerance: Tolerance) -> bool:
    one, other = float(shown), float(printed)
    difference, largest = abs(one - other), max(abs(one), abs(other))
    # The finer of the two: 1. would be too coarse for 1.6000, and 1e-01 for 6e-08.
    unit = min(_unit(shown), _unit(printed))
    # Plus the rounding error of a difference of two decimal fractions.
    return (
        difference <= unit * 1.000001 + largest * 1e-12
        or difference <= tolerance.within * largest
        or largest < tolerance.below
    )


def _unit(number: str) -> float:
    """Return a unit of the last printed digit: 0.01 for 1.25, 1e-7 for 3e-07.

    A zero with an exponent, 0e+00, has no unit; only a declared bound says how small it
    is.
    """
    digits, _, exponent = number.partition("e")
    if exponent and not float(digits):
        return 0.0
    return float(f"1e{int(exponent or 0) - len(digits.partition('.')[2])}")


def compare(page: Page, chain: Chain, outputs: list[str]) -> Iterator[Problem]:
    """Return every line of the outputs that differs from the run.

    If the run prints more or fewer lines than an output shows, only the first that
    differs is told, because those after it stand elsewhere.
    """
    for block, printed in zip(chain.blocks, outputs, strict=True):
        if reason := _unprintable(printed):
            yield Problem(page.path, block.line, reason)
        elif block.output:
            for line, reason in _differences(block.output, split_lines(printed)):
                yield Problem(page.path, line, reason)
        elif printed:
            first = split_lines(printed)[0]
            reason = f"prints {first!r}, but the page shows no output: make outputs"
            yield Problem(page.path, block.line, reason)


def _differences(output: Output, printed: list[str]) -> list[tuple[int, str]]:
    """Return the line and the difference of each line that does not agree."""
    shown = split_lines(output.text)
    pairs = enumerate(zip_longest(shown, printed), start=output.line + 1)
    different: list[tuple[int, str]] = []
    for line, (ours, theirs) in pairs:
        both = ours is not None and theirs is not None
        if not both or not agrees(ours, theirs, output.tolerance):
            shows, gives = (
                "nothing" if text is None else repr(text) for text in (ours, theirs)
            )
            reason = f"the page shows {shows}, the run gives {gives}: {_REMEDY}"
            different.append((line, reason))
    return different if len(shown) == len(printed) else different[:1]


def refresh(file: Path, root: Path) -> tuple[str, list[Problem]]:
    """Rewrite the outputs of one page from a run, completely or not at all.

    An output that agrees with the run is not changed.

    Returns:
        The difference, empty if there is none, and any problems; with a problem the
        page is left unchanged.
    """
    page = load_page(file, root)
    if page.problems:
        return "", page.problems
    evidence, outputs = Evidence(page, root), list[str]()
    try:
        for chain in page.chains:
            outputs += evidence.run(chain, WRITTEN)
    except PageError as error:
        return "", [*error.problems]
    for block, output in zip(page.blocks, outputs, strict=True):
        if reason := _unprintable(output):
            return "", [Problem(page.path, block.line, reason)]
    before = "".join(f"{line}\n" for line in page.lines)
    after = _rewritten(page, outputs)
    if load_page(file, root).lines != page.lines:
        reason = "the page was edited while it ran: run again"
        return "", [Problem(page.path, 1, reason)]
    if after != before:
        write_whole(file, after)
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    difference = "".join(difflib.unified_diff(old, new, page.path, page.path))
    return difference + "".join(_draw(page, evidence.drawn, root)), []


def _unprintable(output: str) -> str | None:
    """Return why an output cannot be shown in a fence, or None."""
    if output and not output.endswith("\n"):
        return "the output does not end with a line break"
    lines = split_lines(output)
    if character := next(filter(None, map(invisible, lines)), ""):
        return f"the output has {character!r}, which cannot be shown: print its repr"
    if any(line.startswith("```") for line in lines):
        return "the output has a line that begins with ```, which ends its fence"
    return None


def _rewritten(page: Page, outputs: list[str]) -> str:
    """Replace each block's output, or insert it after a block without one."""
    lines = [f"{line}\n" for line in page.lines]
    for block, printed in reversed([*zip(page.blocks, outputs, strict=True)]):
        if block.output:
            first = block.output.line
            last = first + block.output.text.count("\n")
            lines[first:last] = _kept(block, printed)
        elif printed:
            lines.insert(block.end, f"\n{EXPECTED}\n```text\n{printed}```\n")
    return "".join(lines)


def _kept(block: Block, printed: str) -> list[str]:
    """Return the printed lines, but keep lines that agree as they were written."""
    assert block.output
    before = block.output.text.splitlines(keepends=True)
    after = printed.splitlines(keepends=True)
    if len(before) != len(after):
        return after
    pairs = zip(before, after, strict=True)
    return [o if agrees(o, n, block.output.tolerance) else n for o, n in pairs]


def _draw(page: Page, drawn: dict[str, str], root: Path) -> Iterator[str]:
    """Save the pictures that the page shows, if they changed beyond tolerance."""
    shown = {PurePosixPath(image.target).name for image in page.images}
    for name in sorted(shown & drawn.keys()):
        file = root / page.figures / name
        if not file.is_file() or not same_drawing(file.read_text("utf-8"), drawn[name]):
            write_whole(file, drawn[name])
            yield f"drawn: {file.relative_to(root).as_posix()}\n"
