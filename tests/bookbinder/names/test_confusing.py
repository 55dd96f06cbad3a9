"""A name that is easily taken for another is that of the code under its heading."""

from pathlib import Path

import pytest

from bookbinder.names.confusing import confusion_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]
PAGE = """# Names

{above}

## Attention

{prose}

```python
def attend(o_proj, x):
    return o_proj(x), look(x, need_weights=True, causal=True), look(causal=causal)
```

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```
"""


def problems(prose: str, above: str = "Words.") -> list[str]:
    page = read_page(PAGE.format(prose=prose, above=above), "page.md")
    assert page.problems == []
    return [str(problem) for problem in confusion_problems(page, ROOT)]


@pytest.mark.parametrize(
    "prose",
    [
        "Through `o_proj`, and `o_proj.weight`.",
        "Not as `another_proj` does, nor as `projection`.",
        "All of them: `q_proj`, `k_proj` and `o_proj`.",
        "As [`v_proj`](04-many-heads.md) does.",
        "With `need_weights=True`.",
        # What the code gives it is no literal value everywhere.
        "With `causal=False`.",
        "With `batch_first=False`, which the code never gives.",
        "As `attend(o_proj, x)`, or `attend(a, b)`; as `other(x, o_proj)`.",
    ],
)
def test_a_name_of_the_code_is_accepted(prose: str) -> None:
    assert problems(prose) == []


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        ("v_proj", "the code under this heading has o_proj, and no v_proj"),
        ("attend.v_proj.weight", "the code under this heading has o_proj, and no v_"),
        ("attend(x, o_proj)", "the code under this heading has attend(o_proj, x"),
        ("attend(x)", "the code under this heading has attend(o_proj, x"),
    ],
)
def test_its_neighbor_is_refused(span: str, reason: str) -> None:
    (problem,) = problems(f"Through `{span}`.")
    assert problem.startswith(f"page.md:7: `{span}`: {reason}")
    # Above, no code has either.
    assert problems("Words.", above=f"Through `{span}`.") == []


def test_a_value_is_that_of_the_nearest_code() -> None:
    below = "\n## Elsewhere\n\nWith `{}`.\n"

    (problem,) = problems("With `need_weights=False`.")
    assert problem.endswith("the code under this heading has need_weights=True alone")

    def asked(argument: str) -> list[str]:
        text = PAGE.format(prose="Words.", above="") + below.format(argument)
        return [
            each.reason for each in confusion_problems(read_page(text, "p.md"), ROOT)
        ]

    assert asked("need_weights=True") == asked("average_attn_weights=False") == []
    assert asked("need_weights=False") == [
        "`need_weights=False`: the code of this page has need_weights=True alone"
    ]
    # PyTorch would do so by itself, so who writes it means the other.
    assert asked("average_attn_weights=True") == [
        "`average_attn_weights=True`: the code of the book has "
        "average_attn_weights=False alone"
    ]
    # What the library does by itself is no mistake, whatever the book's code asks for.
    assert asked("return_weights=False") == asked("causal=False") == []
