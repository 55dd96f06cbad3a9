"""Connect the pages to pytest: pytest-codeblocks runs them, this plugin watches.

Each page has three kinds of tests: the audit, one test for each chain of blocks, and
the evidence, which checks that the blocks executed the page's listings and drew its
figures. When all have passed, the run writes a record of the page, which the finished
site shows.

pytest-codeblocks finds the pages and runs the blocks. It would give a chain of blocks
one output, so the pages are read, and outputs are compared, here.
"""

import contextlib
import os
from collections.abc import Generator, Iterable
from functools import cache, wraps
from pathlib import Path
from unittest.mock import patch

import pytest
from pytest_codeblocks import plugin
from pytest_codeblocks.main import CodeBlock
from pytest_codeblocks.plugin import MarkdownFile, TestBlock

from bookbinder.audit import audit
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.outputs import compare
from bookbinder.page import Chain, PageError, load_page
from bookbinder.publishing.records import foundations, record_file, write_record
from bookbinder.running.blocks import program
from bookbinder.running.figures import draw_as_the_book
from bookbinder.running.importing import change_imports
from bookbinder.running.recording import run, watch_sections
from bookbinder.running.signatures import check_shapes, forget_calls

# Taken once, before anything runs, because later changes are not what ran.
_standing_on = cache(foundations)


def pytest_load_initial_conftests() -> None:
    """Have the library watched and its shapes checked before anything imports it."""
    change_imports(watch_sections, check_shapes)


def pytest_configure() -> None:
    """Draw as the book does."""
    draw_as_the_book()
    if precision := os.environ.get("BOOK_AUTO_PRECISION"):  # set by make elsewhere
        from tested_transformer.training import devices

        @wraps(devices.faster_precision)
        def play(_step: object) -> str:
            return precision

        patch.object(devices, "faster_precision", play).start()


def pytest_runtest_setup() -> None:
    """Have the shapes of each function checked in every test."""
    forget_calls()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    parent: pytest.Collector,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect each page that pytest-codeblocks would read with this plugin's reader."""
    collectors = yield
    return [
        PageFile.from_parent(parent, path=collector.path)
        if isinstance(collector, MarkdownFile)
        else collector
        for collector in collectors
    ]


class PageFile(pytest.File):
    """The tests of a page: the audit, its chains, and the evidence.

    ``evidence`` is what its chains have done, and ``left`` has the names of the tests
    that have not passed yet.
    """

    evidence: Evidence
    left: set[str]
    standing_on: str

    def collect(self) -> Iterable[pytest.Item]:
        """Return the tests in this order."""
        root = self.config.rootpath
        page = load_page(self.path, root)
        self.evidence, self.standing_on = Evidence(page, root), _standing_on(root)
        tests: list[pytest.Item] = [
            PageItem.from_parent(self, name="audit"),
            *(ChainItem.from_parent(self, chain=chain) for chain in page.chains),
            PageItem.from_parent(self, name="evidence"),
        ]
        self.left = {test.name for test in tests}
        return tests

    def note(self, name: str, report: pytest.TestReport) -> None:
        """Write the page's record when all tests have passed, in whatever order.

        If one fails, delete the record.
        """
        page, lines, root = self.evidence.page, self.evidence.lines, self.evidence.root
        if not self.path.resolve().is_relative_to(root.resolve()):
            return
        with contextlib.suppress(OSError):  # A checkout may be read-only.
            if not report.passed:
                record_file(root, page.path).unlink(missing_ok=True)
            elif report.when == "call":
                self.left.discard(name)
                if not self.left:
                    write_record(root, page, lines, self.standing_on)


class ChainItem(TestBlock):
    """A chain, which pytest-codeblocks runs: watched, in a fresh state."""

    def __init__(self, parent: PageFile, chain: Chain) -> None:
        block = CodeBlock(program(chain), chain.line, "python")
        super().__init__(f"line {chain.line}", parent, block)
        self.evidence, self.chain = parent.evidence, chain

    def runtest(self) -> None:
        """Run the chain, and compare its outputs."""
        with (
            self.evidence.gathered(self.chain) as outputs,
            patch.object(plugin, "exec", run, create=True),
        ):
            super().runtest()
        if problems := [*compare(self.evidence.page, self.chain, outputs)]:
            raise PageError(problems)


class PageItem(pytest.Item):
    """A test of a whole page, which fails with all its problems at once.

    The audit checks what the page shows. The evidence checks what its blocks did, after
    running those that were not selected.
    """

    parent: PageFile

    def runtest(self) -> None:
        """Fail if there is any problem."""
        evidence = self.parent.evidence
        problems = (
            audit(evidence.page, evidence.root)
            if self.name == "audit"
            else evidence_problems(evidence)
        )
        if problems:
            raise PageError(problems)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        """Show problems without a traceback, and other errors with it."""
        if isinstance(excinfo.value, PageError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the page."""
        return self.path, 0, f"{self.path.name}: {self.name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell a page's file how each of its tests has ended."""
    report = yield
    if isinstance(item.parent, PageFile):
        item.parent.note(item.name, report)
    return report
