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
    Chain,
    Page,
    Problem,
    Tolerance,
    invisible,
    load_page,
    split_lines,
)
from bookbinder.running.blocks import SEPARATOR, explain, run_chain
from bookbinder.running.figures import figures_folder, same_drawing
from bookbinder.running.state import WRITTEN
from bookbinder.writing import write_whole

__all__ = ["agrees", "compare", "refresh", "wide_tolerances"]

# A separate number: not the 2 in conv2d, in 10.1.1 or in v2.
_DECIMAL = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.]*\w)"
)
_WIDE = 0.1
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


def compare(page: Page, chain: Chain, printed: str) -> Iterator[Problem]:
    """Return every line of the outputs that differs from the run.

    If the run prints more or fewer lines than an output shows, only the first that
    differs is told, because those after it stand elsewhere.
    """
    for block, got in zip(chain.blocks, printed.split(SEPARATOR), strict=False):
        shown = split_lines(block.output.text) if block.output else []
        ran = split_lines(_as_on_a_terminal(got))
        if ran and not block.output:
            reason = f"prints {ran[0]!r}, but the page shows no output: make outputs"
            yield Problem(page.path, block.line, reason)
        elif block.output:
            tolerance, first = block.output.tolerance, block.output.line + 1
            lines = enumerate(zip_longest(shown, ran), start=first)
            different = [
                (line, f"the page shows {_quote(ours)}, the run gives {_quote(theirs)}")
                for line, (ours, theirs) in lines
                if ours is None or theirs is None or not agrees(ours, theirs, tolerance)
            ]
            if len(shown) != len(ran):
                del different[1:]
            for line, what in different:
                yield Problem(page.path, line, f"{what}: {_REMEDY}")
            if got and not got.endswith("\n") and not different:
                reason = "the output does not end with a line break"
                yield Problem(page.path, block.line, reason)


def _quote(line: str | None) -> str:
    return "nothing" if line is None else repr(line)


def wide_tolerances(page: Page) -> list[Problem]:
    """Return the outputs that declare a tolerance above 10 %, for reviewers."""
    return [
        Problem(
            page.path, output.tolerance.line, f"within {output.tolerance.within:.0%}"
        )
        for output in (block.output for block in page.blocks)
        if output and output.tolerance.within > _WIDE
    ]


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
    evidence, outputs = Evidence(page, root), dict[int, str]()
    for chain in page.chains:
        try:
            with evidence.gathered(chain, WRITTEN):
                printed = run_chain(chain)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return "", [explain(page, chain, error)]
        for block, output in zip(chain.blocks, printed.split(SEPARATOR), strict=False):
            reason = _unprintable(_as_on_a_terminal(output))
            if reason:
                return "", [Problem(page.path, block.line, reason)]
            outputs[block.line] = _as_on_a_terminal(output)
    before = "".join(f"{line}\n" for line in page.lines)
    after = _rewritten(page, outputs)
    if load_page(file, root).lines != page.lines:
        return "", [
            Problem(page.path, 1, "the page was edited while it ran: run again")
        ]
    if after != before:
        write_whole(file, after)
    changed = _draw(page, evidence.drawn, root)
    difference = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        page.path,
        page.path,
    )
    return "".join(difference) + "".join(f"drawn: {name}\n" for name in changed), []


def _as_on_a_terminal(output: str) -> str:
    """Return what is left to see of lines that go back to their start, as progress."""
    lines = output.split("\n")
    for number, line in enumerate(lines):
        seen = ""
        for part in line.split("\r"):
            seen = part + seen[len(part) :]
        lines[number] = seen
    return "\n".join(lines)


def _unprintable(output: str) -> str | None:
    """Return why an output cannot be shown in a fence, or None."""
    if output and not output.endswith("\n"):
        return "the output does not end with a line break"
    lines = split_lines(output)
    if found := next((found for line in lines if (found := invisible(line))), ""):
        return f"the output has {found!r}, which cannot be shown: print its repr"
    if any(line.startswith("```") for line in split_lines(output)):
        return "the output has a line that begins with ```, which ends its fence"
    return None


def _rewritten(page: Page, outputs: dict[int, str]) -> str:
    """Replace each block's output, or insert it after a block without one."""
    lines = [f"{line}\n" for line in page.lines]
    for block in reversed(page.blocks):
        printed = outputs[block.line]
        if block.output:
            first = block.output.line
            last = first + block.output.text.count("\n")
            lines[first:last] = [
                _kept(block.output.text, printed, block.output.tolerance)
            ]
        elif printed:
            fence = f"\n{EXPECTED}\n```text\n{printed}```\n"
            lines.insert(block.end, fence)
    return "".join(lines)


def _kept(shown: str, printed: str, tolerance: Tolerance) -> str:
    """Return the printed lines, but keep lines that agree as they were written."""
    before, after = split_lines(shown), split_lines(printed)
    if len(before) != len(after):
        return printed
    return "".join(
        f"{old if agrees(old, new, tolerance) else new}\n"
        for old, new in zip(before, after, strict=True)
    )


def _draw(page: Page, drawn: dict[str, str], root: Path) -> list[str]:
    """Save the pictures that the page shows, if they changed beyond tolerance."""
    folder = figures_folder(page, root)
    shown = {PurePosixPath(image.target).name for image in page.images}
    changed: list[str] = []
    for name in sorted(shown & drawn.keys()):
        file = folder / name
        if file.is_file() and same_drawing(file.read_text("utf-8"), drawn[name]):
            continue
        write_whole(file, drawn[name])
        changed.append(f"{folder.relative_to(root).as_posix()}/{name}")
    return changed
