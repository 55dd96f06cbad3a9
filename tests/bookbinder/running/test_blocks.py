"""A chain runs on the lines of its page, and each block has its own output."""

from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.outputs import compare
from bookbinder.page import PageError, read_page
from bookbinder.running.blocks import program

PAGE = read_page(
    """\
Text.

```python
x = 1
print(x, "in all")
```

<!--pytest-codeblocks:expected-output-->
```text
1 in all
```

<!--pytest-codeblocks:cont-->
```python
print(x + 1)
```

<!--pytest-codeblocks:expected-output-->
```text
2
```
""",
    "page.md",
)


def test_each_block_runs_on_its_lines_and_has_its_own_output():
    (chain,) = PAGE.chains
    lines = program(chain).splitlines()
    code = [lines[number] for number in (3, 4, 14)]
    assert code == ["x = 1", 'print(x, "in all")', "print(x + 1)"]
    assert sum(map(bool, lines)) == 5
    printed = Evidence(PAGE, Path()).run(chain)
    assert printed == ["1 in all\n", "2\n"]
    assert list(compare(PAGE, chain, printed)) == []
    moved = ["1 in all\n2\n", ""]
    remedy = "undo the change that did this, or make outputs"
    assert [str(problem) for problem in compare(PAGE, chain, moved)] == [
        f"page.md:11: the page shows nothing, the run gives '2': {remedy}",
        f"page.md:20: the page shows '2', the run gives nothing: {remedy}",
    ]
    # Behind a line too many each stands elsewhere, so only the first is told.
    (problem,) = compare(PAGE, chain, ["0\n1 in all\n", "2\n"])
    assert "shows '1 in all', the run gives '0'" in problem.reason
    # What make outputs would refuse to write gets the reason, not that advice.
    (problem,) = compare(PAGE, chain, ["50%\r100%\n", "2\n"])
    assert problem.reason.startswith("the output has '\\r', which cannot be shown")


def test_an_error_is_explained_at_the_deepest_line_of_the_page():
    for code, line, message in (
        ("def f():\n    return {}['key']\n\n\nf()", 8, "KeyError: 'key'"),
        ("x = 1\ny = (", 8, "SyntaxError: '(' was never closed"),
        ("print(other)", 7, "make it here, or continue the run that makes it, <!--py"),
    ):
        text = f"```python\nother = 1\n```\n\n```python\nlength = 1\n{code}\n```\n"
        page = read_page(text, "page.md")
        with pytest.raises(PageError) as caught:
            Evidence(page, Path()).run(page.chains[1])
        (problem,) = caught.value.problems
        assert problem.line == line
        assert message in problem.reason
