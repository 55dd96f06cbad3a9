"""What each test executes of the library, and how long it takes."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

import pytest
from _pytest.runner import runtestprotocol

from bookbinder.evidence import Evidence
from bookbinder.running.blocks import recorded_lines

__all__ = ["Ran", "fails", "meeting", "watched"]


@dataclass
class Ran:
    """What a test executes, and how long it takes."""

    seconds: float = 0.0
    lines: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    failed: bool = False


def watched(items: list[pytest.Item], folder: Path) -> dict[str, Ran]:
    """Run tests, and tell for each what it executes; only in a fork."""
    from bookbinder import pytest_plugin

    found: dict[str, Ran] = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        # Of a page's blocks the plugin of the pages keeps the lines itself.
        seen = Evidence()
        if isinstance(getattr(item, "obj", None), pytest_plugin.ChainBlock):
            pytest_plugin.evidence_of(item.config)[item.path] = seen
        began = process_time()
        with recorded_lines(folder) as lines:
            failed = fails(item, following)
        here = str(folder)
        found[item.nodeid] = Ran(
            process_time() - began,
            frozenset(each for each in lines | seen.lines if each[0].startswith(here)),
            failed,
        )
    return found


def fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test, and clean up after it for the one that follows."""
    reports = runtestprotocol(item, nextitem=following, log=False)
    return any(report.failed for report in reports)


def meeting(ran: dict[str, Ran]) -> dict[tuple[str, int], list[str]]:
    """Give the tests that execute each line, the fastest first."""
    tests = defaultdict[tuple[str, int], list[str]](list)
    for nodeid, each in sorted(ran.items(), key=lambda pair: pair[1].seconds):
        if not each.failed:
            for line in each.lines:
                tests[line].append(nodeid)
    return tests
