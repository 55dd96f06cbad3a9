"""Sections are found by their marks; their statements are known by their lines."""

import ast
import re
from pathlib import Path

import pytest

from bookbinder.listings import (
    ListingError,
    find_section,
    idle_statements,
    never_executed,
)
from bookbinder.running.recording import recorded_lines, watch_sections

SOURCE = '''\
"""A module."""
# --8<-- [start:outer]
LIMIT = 3


# --8<-- [start:inner]
def clip(
    x,
    low=0,
):
    """Keep a number inside its limits."""
    if x > LIMIT:
        return (
            LIMIT
        )
    for _ in range(1):
        with open(__file__):
            x = max(
                x,
                low,
            )
    try:
        return x
    finally:
        del x
    # --8<-- [end:inner]
# --8<-- [end:outer]
    # --8<-- [start:loose]
# --8<-- [start:twice]
# --8<-- [end:twice]
# --8<-- [start:twice]
# --8<-- [end:twice]
# --8<-- [end:backwards]
# --8<-- [start:backwards]
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").write_text(SOURCE)
    return tmp_path


def test_a_section_is_what_lies_between_its_marks(root: Path):
    section = find_section(root, "src/module.py", "outer")
    assert section.text.startswith("LIMIT = 3\n\n\ndef clip(")
    assert section.text.endswith("        del x")
    assert "--8<--" not in section.text
    lines = SOURCE.splitlines()
    assert lines[section.first - 1] == "LIMIT = 3"
    assert lines[section.last - 1].strip() == "# --8<-- [end:inner]"


def test_a_listing_of_nothing_says_why(root: Path):
    for path, name, message in (
        ("src/none.py", "outer", "src/none.py is not a Python file under src/"),
        ("src", "outer", "src is not a Python file under src/"),
        ("src/module.py", "missing", "it has backwards, inner, loose, outer, twice"),
        ("src/module.py", "loose", "has no section 'loose', each with a start and an"),
        ("src/module.py", "twice", "has several sections 'twice'"),
        ("src/module.py", "backwards", "has no section 'backwards'"),
    ):
        with pytest.raises(ListingError, match=re.escape(message)):
            find_section(root, path, name)


def run(root: Path, *calls: str) -> list[int]:
    """Import the module, make the calls, and ask what has not run."""
    file = root / "src" / "module.py"
    with recorded_lines({str(file)}) as lines:
        tree = ast.parse(SOURCE)
        namespace = {"__file__": str(file)} | watch_sections(tree, SOURCE, str(file))
        exec(compile(tree, str(file), "exec"), namespace)
        for call in calls:
            exec(call, namespace)
    return never_executed(find_section(root, "src/module.py", "outer"), lines.keys())


def test_importing_runs_nothing_in_functions_and_each_branch_counts(root: Path):
    inside = [12, 13, 16, 17, 18, 23, 25]
    assert run(root, "clip(1)") == [13]  # while it is recorded, it is imported
    assert run(root) == inside
    section = find_section(root, "src/module.py", "outer")
    assert never_executed(section, set()) == inside
    assert run(root, "clip(9)") == [16, 17, 18, 23, 25]
    assert run(root, "clip(1)", "clip(9)") == []


def test_a_statement_has_run_where_any_of_its_lines_has():
    executed = {("a.py", 3)}
    code = "from __future__ import annotations\ncall(\n    1,\n)\nnever()\n"
    assert idle_statements(code, "a.py", executed, everywhere=True) == [5]
