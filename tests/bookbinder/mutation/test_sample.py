"""A sample of mutants and slips, with a fixed seed. The whole is ``make mutants``.

One in twelve may go unnoticed: a page that is edited has other slips, and among them
there may be one that makes no difference. Slips that could be meant do not count.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookbinder.mutation.slips import MEANT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def noticed_of_twelve(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "bookbinder.mutation", *arguments]
    command += ["--sample", "12", "--seed", "5", "--jobs", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    rows = re.findall(r"^(\w.*?) +(\d+) +(\d+) +\d", told, re.MULTILINE)
    counts = {name: (int(made), int(noticed)) for name, made, noticed in rows}
    assert counts.pop("all", (0, 0))[0] == 12, told
    missed = [made - seen for name, (made, seen) in counts.items() if name not in MEANT]
    return 12 - sum(missed), told


def test_tests_notice_what_is_broken_in_the_library(tmp_path: Path):
    tests = "tests/tested_transformer/test_cache.py"
    kept = ("--kept", str(tmp_path))
    count, told = noticed_of_twelve(
        "library", "--module", "cache", "--tests", tests, *kept
    )
    assert count >= 11, told


def test_checks_notice_what_is_broken_on_a_page(tmp_path: Path):
    pages = ("--page", "CONTRIBUTING.md", "--page", "docs/notation.md")
    kept = ("--kept", str(tmp_path))
    count, told = noticed_of_twelve("pages", *pages, "--no-links", *kept)
    assert count >= 11, told
