"""Report everything that is wrong with one page, for ``make page``."""

import subprocess
import sys
from pathlib import Path

from bookbinder.audit import audit
from bookbinder.chapter import PLACES, chapter_problems
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.outputs import compare
from bookbinder.page import Page, PageError, Problem, load_page

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
    problems = [*page_problems(page, root), *chapter_problems(page, root)]
    if page.path.startswith("docs/chapters/"):
        # A chapter is in them, too.
        for place in PLACES:
            problems += audit(load_page(root / place, root), root)
    reported = [str(problem) for problem in problems]
    for linter in linters:
        lines = "".join(filter(None, linter.communicate())).splitlines()
        # A linter may name the page by another path than the one it was given.
        reported += [line for line in lines if f"{file.name}:" in line]
    return reported


def page_problems(page: Page, root: Path) -> list[Problem]:
    """Audit a page, run it, and check the evidence of its blocks."""
    problems = audit(page, root)
    if not page.code_is_known:
        return problems
    evidence, ended = Evidence(page, root), True
    for chain in page.chains:
        try:
            problems += compare(page, chain, evidence.run(chain))
        except PageError as error:
            problems += error.problems
            ended = False
    # Of a chain that broke off, much has not run.
    return [*problems, *evidence_problems(evidence)] if ended else problems
