"""Bring the outputs and pictures of pages up to date, and show what changed."""

import difflib
import os
import tempfile
from pathlib import Path, PurePosixPath

from bookbinder.evidence import Evidence
from bookbinder.reading.pages import (
    EXPECTED,
    Page,
    Problem,
    load_page,
    split_lines,
)
from bookbinder.running.blocks import SEPARATOR, WRITTEN, explain, run_chain
from bookbinder.running.figures import figures_folder, same_drawing


def refresh(file: Path, root: Path) -> tuple[str, list[Problem]]:
    """Rewrite the outputs of one page from a run, whole or not at all.

    Returns:
        The difference made, empty if there is none, and the problems met; with a
        problem the page is left as it was.
    """
    page = load_page(file, root)
    if page.problems:
        return "", page.problems
    evidence, outputs = Evidence(), dict[int, str]()
    for chain in page.chains:
        try:
            with evidence.gathered(chain, root, WRITTEN):
                printed = run_chain(chain)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return "", [explain(page, chain, error)]
        for block, output in zip(chain.blocks, printed.split(SEPARATOR), strict=False):
            reason = _unprintable(output)
            if reason:
                return "", [Problem(page.path, block.line, reason)]
            outputs[block.line] = output
    before, after = (
        "".join(f"{line}\n" for line in page.lines),
        _rewritten(page, outputs),
    )
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


def _unprintable(output: str) -> str | None:
    """Say why an output cannot stand in a fence, or nothing."""
    if output and not output.endswith("\n"):
        return "the output does not end with a line break"
    if any(line.startswith("```") for line in split_lines(output)):
        return "the output has a line that begins with ```, which ends its fence"
    return None


def _rewritten(page: Page, outputs: dict[int, str]) -> str:
    """Put each block's output where it stands, or right behind a block without one."""
    lines = [f"{line}\n" for line in page.lines]
    for block in reversed(page.blocks):
        printed = outputs[block.line]
        if block.output:
            first = block.output.line
            last = first + block.output.text.count("\n")
            lines[first:last] = [printed]
        elif printed:
            fence = f"\n{EXPECTED}\n```text\n{printed}```\n"
            lines.insert(block.end, fence)
    return "".join(lines)


def _draw(page: Page, drawn: dict[str, str], root: Path) -> list[str]:
    """Keep the pictures that the page shows, if they changed beyond tolerance."""
    folder = figures_folder(page, root)
    shown = {PurePosixPath(image.target).name for image in page.images}
    changed: list[str] = []
    for name in sorted(shown & drawn.keys()):
        file = folder / name
        if file.is_file() and same_drawing(file.read_text("utf-8"), drawn[name]):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, drawn[name])
        changed.append(f"{folder.relative_to(root).as_posix()}/{name}")
    return changed


def write_whole(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with tempfile.NamedTemporaryFile(
        "w", dir=file.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as part:
        part.write(text)
    os.chmod(part.name, 0o644)
    os.replace(part.name, file)
