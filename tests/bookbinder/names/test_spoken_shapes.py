"""A shape in a docstring or a comment of a run is one that was there."""

from collections.abc import Callable
from typing import Any

import pytest

from bookbinder.names.spoken_shapes import spoken_shape_problems

Problems = Callable[[str, str], list[str]]
PAGE = '''# Shapes

```python
import torch

B, T, H = 2, 5, 3
lengths = torch.tensor([5, 4])
real = torch.arange(T) < lengths[:, None]  # (B, T)
mask = real[:, None, None, :]  # (B, 1, 1, T), for the scores


def attend(x, context=None, real=None):
    """x: (B, T, D). context: (B, S, C). real: (B, S), of the context.

    Gives the output and the weights: (B, T, S).
    """
    if context is None:
        context = x
    weights = x @ context.mT[:, : x.shape[2]]  # (B, T, S)
    if real is not None:
        weights = weights * real[:, None]
    return x, weights


def pairs(x):
    """Inputs and targets: each (B, T)."""
    return x[:, :-1, 0], x[:, 1:, 0]


attend(torch.ones(2, 5, 4))
attend(torch.ones(2, 5, 4), torch.ones(2, 7, 6), torch.ones(2, 7))
pairs(torch.ones(2, 8, 4))


def first(x, context=None):
    """x: (B, T, D); context: (B, S, C), if there is one."""
    return x


first(torch.ones(2, 5, 4))
first(torch.ones(2, 5, 4), torch.ones(2, 7, 6))
again = torch.ones(
    2, 7
)  # (B, 7)
again = again[:, :, None]  # (B, 7, 1)
again = torch.stack([
    again,  # (B, 7, 1), too
    again,
])
for size in (3, 4):
    some = torch.ones(B, size)  # (B, 3)
```

```python
import torch

wide = torch.ones(3, 3)  # B = S = 3
rows = torch.ones(3, 2, 3, 4)  # and T = 3
both = rows @ wide.new_ones(4, 3) + wide  # (B, S) as (T, S)
turned = wide.mT  # (S, B)
```

Below it:

| step | name | shape |
|---|---|---|
| real ones | `real` | $(B, T)$ |
| of them | `mask` | $(B, 1, 1, T)$ |
'''


@pytest.fixture
def problems(slipped: Callable[[str, str], Any]) -> Problems:
    return lambda right, wrong: [
        str(p) for p in spoken_shape_problems(*slipped(right, wrong))
    ]


def test_shapes_that_are_there_are_accepted(problems: Problems) -> None:
    assert problems("# Shapes", "# Shapes") == []


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("# (B, T)\n", "# (T, B)\n", "8: this says (T, B), but real is (2, 5) in the"),
        ("# (B, 1, 1, T), for", "# (B, 1, T), for",
         "9: this says (B, 1, T), but mask is (2, 1, 1, 5) in the run"),
        ("# (B, 1, 1, T), for", "# (B, 1, 1, H), for", "9: this says (B, 1, 1, H), "),
        ("x: (B, T, D).", "x: (B, D, T).", "15: this says (B, T, S), but what "),
        ("real: (B, S), of", "real: (B, T), of", "13: this says (B, T), but real is"),
        ("weights: (B, T, S).", "weights: (B, S, T).",
         "15: this says (B, S, T), but what comes back is (2, 5, 4) or (2, 5, 7) in"),
        ("# (B, T, S)\n", "# (B, H, T, S)\n", "19: this says (B, H, T, S), but w"),
        ("each (B, T).", "each (B, T, D).",
         "26: this says (B, T, D), but what comes back is (2, 7) in the run"),
        # All of its lines run in the first call, which has none.
        ("context: (B, S, C), if", "context: (S, B, C), if",
         "36: this says (S, B, C), but context is (2, 7, 6) in the run"),
        # They are something else when the chain ends.
        ("# (B, 7)", "# (B, 7, 1)", "44: this says (B, 7, 1), but again is (2, 7) in"),
        ("# (B, 7, 1)\n", "# (B, 1, 7)\n", "45: this says (B, 1, 7), but again is "),
        ("# (B, 3)", "# (B, 4)", "51: this says (B, 4), but some is (2, 3) in the ru"),
        ("# (B, S) as (T, S)", "# (B, S) as (H, S)",
         "59: nothing above says which size H has: write H = and its size behind what"),
        ("# (B, S) as (T, S)", "# (B, S) as (T, B, S)",
         "59: this says (B, S) as (T, B, S), but on its line is (3, 2, 3, 3) or (3, 2"),
        ("# and T = 3", "# and T = 4", "59: this says (B, S) as (T, S), but on its l"),
        ("| $(B, T)$ |", "| $(T, B)$ |", "67: (T, B), but real is (2, 5) in the run"),
        ("| $(B, 1, 1, T)$ |", "| $(B, 1, T, 1)$ |", "68: (B, 1, T, 1), but mask is"),
    ],
)  # fmt: skip
def test_another_shape_is_refused(
    right: str, wrong: str, reason: str, problems: Problems
) -> None:
    (problem,) = problems(right, wrong)
    assert problem.startswith(f"page.md:{reason}")
