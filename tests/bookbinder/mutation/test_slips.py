"""A slip changes one line in one place; chance alone chooses which."""

from collections import Counter

from bookbinder.mutation.slips import KINDS, slips

TEXT = r"""# A page with 64 heads

See `attention_weights` of [a chapter](01-a-lookup.md), $\frac{a}{b}$, `(B, T)`, 2017.
The letter `q`, and $\sin x$.

| name | shape |
|---|---|
| scores | (2, 3, 7) |

<!--pytest-codeblocks:cont-->
```python
print(7)
```

<!--pytest-codeblocks:expected-output-->
```text
0.25 (3, 5)
```

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```

```mermaid
flowchart TB
    accTitle: Words that nobody draws
    %% q = (B, T)
    Q["queries: (B, T)"]
```

## Sources

Vaswani et al., section 3.2.
"""
PAGE = TEXT.split("\n")
NUMBERS = {line: number for number, line in enumerate(PAGE, start=1)}


def test_every_kind_finds_its_place_and_changes_one_line():
    made = slips({"page.md": PAGE}, 60, seed=3)
    assert {slip.kind for slip in made} == set(KINDS)
    for slip in made:
        assert slip.before == PAGE[slip.line - 1]
        after = slip.made_in(PAGE)
        assert len(after) == len(PAGE)
        assert [
            n for n, (a, b) in enumerate(zip(PAGE, after, strict=True), 1) if a != b
        ] == [slip.line]


def test_kinds_take_turns():
    pages = {f"{n}.md": PAGE for n in range(9)}
    counts = Counter(slip.kind for slip in slips(pages, 2 * len(KINDS), seed=1))
    assert set(counts.values()) == {2}


def test_the_seed_decides():
    assert slips({"a": PAGE}, 30, seed=1) == slips({"a": PAGE}, 30, seed=1)
    assert slips({"a": PAGE}, 30, seed=1) != slips({"a": PAGE}, 30, seed=2)


def test_what_is_for_the_site_alone_is_left_as_it_is():
    text = "---\nboost: 0.5\n---\n\n# A page\n\nWith 64 of them, and 128 more.\n"
    found = slips({"a": text.split("\n")}, 60, seed=1)
    assert found
    assert {slip.line for slip in found} == {7}


def test_what_no_slip_touches():
    lines = [slip.line for seed in range(20) for slip in slips({"a": PAGE}, 60, seed)]
    for line in (
        "Vaswani et al., section 3.2.",
        "    %% q = (B, T)",
        "    accTitle: Words that nobody draws",
        "print(7)",
    ):
        assert NUMBERS[line] not in lines
    prose = NUMBERS[PAGE[2]]
    afters = [
        slip.after
        for seed in range(40)
        for slip in slips({"a": PAGE}, 60, seed)
        if slip.line == prose
    ]
    assert all("2017" in after for after in afters)
