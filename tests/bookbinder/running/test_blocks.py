"""Each chain starts as in a new interpreter, and lines are those of the page."""

import os
import random
import sys
from pathlib import Path

import jaxtyping
import pytest
import torch

from bookbinder.page import read_page
from bookbinder.reading.seen import Noted, Seen, remarks
from bookbinder.running.blocks import (
    SEPARATOR,
    WRITTEN,
    compare,
    expected,
    explain,
    fresh_state,
    program,
    recorded_lines,
    run_chain,
)

PAGE = read_page(
    """\
Text.

```python
x = 1
print(x)
```

<!--pytest-codeblocks:expected-output-->
```text
1
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


def observed() -> dict[str, object]:
    """Look at everything that one block could change for the next."""
    return {
        "seed": torch.initial_seed(),
        "random": (random.random(), torch.rand(1).item()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "printed": str(torch.tensor([1 / 3, 1e9])),
        "environment": os.environ.get("BOOK"),
        "path": [*sys.path],
        "files": os.listdir(),
        "checked": jaxtyping.config.jaxtyping_disable,
    }


def disturb() -> None:
    torch.manual_seed(7)
    random.seed(7)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.set_printoptions(precision=1, sci_mode=True)
    os.environ["BOOK"] = "open"
    sys.path.insert(0, "nowhere")
    Path("left.txt").write_text("behind")
    jaxtyping.config.update("jaxtyping_disable", False)


def test_nothing_a_block_does_reaches_the_next():
    with fresh_state():
        first = observed()
        disturb()
    with fresh_state():
        assert observed() == first


def test_what_draws_without_a_seed_draws_other_numbers_than_the_outputs() -> None:
    with fresh_state():
        here = torch.rand(1).item(), random.random()
    with fresh_state(WRITTEN):
        written = torch.rand(1).item(), random.random()
    assert here[0] != written[0]
    assert here[1] != written[1]


def disturb_and_fail() -> None:
    with fresh_state():
        disturb()
        raise ZeroDivisionError


def test_nothing_a_block_does_reaches_the_other_tests():
    before, here = dict(os.environ), Path.cwd()
    with pytest.raises(ZeroDivisionError):
        disturb_and_fail()
    assert (dict(os.environ), Path.cwd()) == (before, here)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert not jaxtyping.config.jaxtyping_disable


def test_code_stands_on_the_lines_of_its_page():
    (chain,) = PAGE.chains
    lines = program(chain).splitlines()
    assert (lines[3], lines[4], lines[14]) == ("x = 1", "print(x)", "print(x + 1)")
    assert sum(map(bool, lines)) == 5


def test_each_block_is_compared_with_its_own_output():
    (chain,) = PAGE.chains
    assert run_chain(chain) == expected(chain) == f"1\n{SEPARATOR}2\n{SEPARATOR}"
    assert compare(PAGE, chain, expected(chain)) is None
    moved = f"1\n2\n{SEPARATOR}{SEPARATOR}"
    problem = compare(PAGE, chain, moved)
    assert str(problem).startswith(
        "page.md:11: the page shows nothing, the run gives '2'"
    )


def test_an_error_is_explained_at_the_deepest_line_of_the_page():
    page = read_page(
        "```python\ndef f():\n    return {}['key']\n\n\nf()\n```\n", "page.md"
    )
    (chain,) = page.chains
    with pytest.raises(KeyError) as caught:
        run_chain(chain)
    assert str(explain(page, chain, caught.value)) == "page.md:3: KeyError: 'key'"


COMMENTED = read_page(
    """\
```python
def double(x):
    if x > 6:
        x = 2 * x  # twice as much
        x = 0
        return x
    return sum(
        [
            x,
            x,
        ]
    )  # below, both


for size in (1, 2, 3):
    numbers = list(
        range(size)
    )  # as many
    size = 10
numbers = [double(n) for n in range(12)]  # in a comprehension
last = 5  # at the end
```
""",
    "page.md",
)


def test_what_there_is_after_a_line_with_a_comment_is_kept_a_few_times() -> None:
    (chain,) = COMMENTED.chains
    seen: list[Seen] = []
    with recorded_lines(Path("/nowhere"), {}, {}, seen, remarks(chain)):
        run_chain(chain)
        tracer = sys.gettrace()
    assert tracer is not None
    noted = [each for each in seen if isinstance(each, Noted)]
    assert [(each.line, each.numbers) for each in noted] == [
        # A line of the chain once, when its statement is over, with all integers.
        (18, {"numbers": [1, 0], "size": [1]}),
        # One of a function three times, with what it had there.
        *((12, {"x": [n], "size": [10]}) for n in (0, 1, 2)),
        *((4, {"x": [2 * n], "size": [10]}) for n in (7, 8, 9)),
        (20, {"numbers": [12, *range(0, 14, 2), *[0] * 5], "size": [10]}),
        (21, {"last": [5], "size": [10]}),
    ]


def test_lines_without_a_comment_are_not_traced_for_it() -> None:
    """Where all has run, or was noted often enough, a function is left alone."""
    page = read_page(
        """\
```python
import sys


def first(x):
    y = x
    return sys._getframe().f_trace_lines


def second(x):  # a comment here, too
    y = x  # as it was
    return sys._getframe().f_trace_lines


assert [first(1) for _ in range(9)] == 9 * [False]
assert [second(1) for _ in range(9)] == 2 * [True] + 7 * [False]
```
""",
        "page.md",
    )
    (chain,) = page.chains
    with recorded_lines(Path("/nowhere"), {}, {}, [], remarks(chain)):
        run_chain(chain)
