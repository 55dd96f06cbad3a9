"""What a sum of sizes says that something costs is counted by a run."""

from collections.abc import Callable

import pytest

RUN = "```python\nD, S = 3, 5\nsteps = 4 * D + D * S\n```\n\n"
WHERE = "<!-- where: D = D; S = S; 4D + DS = steps -->\n"
COLUMN = r"<!-- where: D = D; S = S; \text{steps} = steps -->" + "\n"
TABLE = "\n| part | steps |\n|---|---|\n| one | $4D$ |\n| two | |\n| three | $DS$ |\n"
MISSING = "this adds up sizes, and no run counts it: bind it with its letters, <!-- "


@pytest.mark.parametrize(
    "text",
    [
        WHERE + "It takes $4D + DS$.",
        '<!-- given: "$4D + DS$": by hand -->\nIt takes $4D + DS$.',
        # No sum of sizes: a product that code has, a number by itself.
        "It takes $DS$, or $4D$, up to $S + 1$.",
        COLUMN + TABLE,
        COLUMN + TABLE.replace("$4D$", "12"),
        # As an average of two rows, for one.
        COLUMN + TABLE.replace("$DS$", "$DS / 2 + DS / 2$"),
    ],
)
def test_what_a_run_counts_is_accepted(problems: Callable[[str], list[str]], text: str):
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("It takes $4D + DS$.", f"6: $4D + DS$: {MISSING}"),
        (WHERE + "It takes $4D + DD$.", f"7: $4D + DD$: {MISSING}"),
        (WHERE.replace("4D + DS =", "4D + DD ="), "6: where: 21 = 27 is not so"),
        ("<!-- where: 4D + DS = steps -->\n$4D + DS$.", f"7: $4D + DS$: {MISSING}"),
        (TABLE.replace("$DS$", "$DS + D$"), f"11: $DS + D$: {MISSING}"),
        (COLUMN + TABLE.replace("$DS$", "$DD$"),
         "8: the column 'steps' does not add up: 21 = 27 is not so"),
        (COLUMN + TABLE.replace("$DS$", "some"),
         "8: the column 'steps' cannot be added up: s"),
    ],
)  # fmt: skip
def test_what_no_run_counts_is_refused(
    problems: Callable[[str], list[str]], text: str, reason: str
):
    (problem,) = problems(text)
    assert problem.startswith(reason)
