"""A line that runs in part is told from one that runs whole."""

from pathlib import Path

import pytest

from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.reading.pages import read_page
from bookbinder.running.blocks import run_chain

LAMBDA = "this lambda is never called"
FUNCTION = "this function is never called"
HALF = "this half of the condition never runs"
EMPTY = "this is never made: there is nothing to go through"


def idle(code: str, folder: Path) -> list[str]:
    """Run a block, and give what is said of its lines."""
    page = read_page(f"# A page\n\n```python\n{code}\n```\n", "page.md")
    assert page.problems == []
    evidence = Evidence()
    for chain in page.chains:
        with evidence.gathered(chain, folder):
            run_chain(chain)
    problems = evidence_problems(page, evidence, folder)
    assert {problem.line for problem in problems} <= {4, 5}
    return [problem.reason for problem in problems]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("f = lambda x: x + 1", [LAMBDA]),
        ("f = lambda x: x + 1\nf(2)", []),
        ("def f(x): return x + 1", [FUNCTION]),
        ("def f(x): return x + 1\nf(2)", []),
        ("a = 3\nb = a + 1 if a > 2 else a - 1", [HALF]),
        ("a = 3\nb = a + 1 if a < 2 else a - 1", [HALF]),
        ("for a in (1, 3):\n    b = a + 1 if a > 2 else a - 1", []),
        ("a = 3\nb = 'more' if a > 2 else 'less'", []),
        ("made = [a + 1 for a in ()]", [EMPTY]),
        ("made = {a: a + 1 for a in ()}", [EMPTY]),
        ("made = [a + 1 for a in (1,)]", []),
        ("made = sum(a + 1 for a in (1,))", []),
        ("f = lambda x: (lambda y: y + 1)\nf(1)", [LAMBDA]),
        # FlexAttention translates what it is given; anyone else has to call it.
        ("flex = dict\nflex(score_mod=lambda s: s + 1)", []),
        ("flex = dict\nflex(other=lambda s: s + 1)", [LAMBDA]),
    ],
)
def test_what_never_runs_on_a_line_that_does(
    code: str, said: list[str], tmp_path: Path
):
    assert idle(code, tmp_path) == said


def test_what_has_run_is_not_asked_again(tmp_path: Path) -> None:
    """A page that makes much in a loop would be told of each instruction, each time."""
    code = (
        "import sys\na = [sys._getframe().f_trace_opcodes if n else 0 for n in (1, 0)]"
    )
    page = read_page(f"```python\n{code}\nprint(a)\n```\n", "page.md")
    (chain,) = page.chains
    with Evidence().gathered(chain, tmp_path):
        assert run_chain(chain).startswith("[False, 0]\n")
