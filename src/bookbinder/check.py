"""Report everything that is wrong with one page, for ``make page``."""

import os
import subprocess
import sys
import time
from pathlib import Path

from bookbinder.audit import audit
from bookbinder.chapter_form import PLACES, chapter_problems, is_chapter
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.outputs import compare
from bookbinder.page import Page, Problem, load_page
from bookbinder.running.blocks import explain, run_chain

__all__ = ["check", "page_problems", "watch"]

_MARKDOWNLINT = "node_modules/markdownlint-cli2/markdownlint-cli2-bin.mjs"


def check(file: Path, root: Path) -> list[str]:
    """Return every problem of a page, as ``page.md:line: reason``."""
    file, root = file.resolve(), root.resolve()
    name = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
    folder = Path(sys.executable).parent
    linters = [
        subprocess.Popen(command, cwd=root, text=True, stdout=-1, stderr=-1)
        for command in (
            [folder / "codespell", name],
            [folder / "node", _MARKDOWNLINT, "--no-globs", name],
        )
    ]
    page = load_page(file, root)
    problems = page_problems(page, root)
    if is_chapter(page.path):
        problems += chapter_problems(page, root)
        # A chapter is in them, too.
        for place in PLACES:
            problems += audit(load_page(root / place, root), root)
    found = [str(problem) for problem in problems]
    for linter in linters:
        told = [stream for stream in linter.communicate() if stream]
        found += [line for line in "".join(told).splitlines() if f"{name}:" in line]
    return found


def page_problems(page: Page, root: Path) -> list[Problem]:
    """Audit a page, run it, and check the evidence of its blocks."""
    problems = audit(page, root)
    if any(page.is_code(problem.line) for problem in page.problems):
        return problems
    evidence, ended = Evidence(page, root), True
    for chain in page.chains:
        try:
            with evidence.gathered(chain):
                printed = run_chain(chain)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problems.append(explain(page, chain, error))
            ended = False
        else:
            problems += compare(page, chain, printed)
    # Of a chain that broke off, much has not run.
    return [*problems, *evidence_problems(evidence)] if ended else problems


def watch(file: Path) -> None:
    """Check a page each time it is saved, until Ctrl-C."""
    saved = 0.0
    while True:
        now = file.stat().st_mtime if file.exists() else saved
        if now != saved:
            saved = now
            # A fresh interpreter: the library may have been edited as well.
            command = [sys.executable, "-m", "bookbinder", "page", str(file)]
            subprocess.run(command, env=os.environ, check=False)
        time.sleep(0.3)
