"""What a message is said to say, one under the same heading says."""

from pathlib import Path

import pytest

from bookbinder.names.messages import message_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]
PAGE = """# Messages

The message names `reshape`, said above all code.

## A refusal

{prose}

```python
raised = "mask must be boolean"
```

<!--pytest-codeblocks:expected-output-->
```text
Use .reshape(...) instead.
```
"""


def problems(prose: str) -> list[str]:
    page = read_page(PAGE.format(prose=prose), "page.md")
    return [str(each) for each in message_problems(page, ROOT)]


@pytest.mark.parametrize(
    ("prose", "refused"),
    [
        ("Its message recommends `reshape`, which copies.", []),
        ("The message speaks of `mask`.", []),
        ("Its message recommends `contiguous`.", ["contiguous"]),
        ("The messages only name `raised`.", ["raised"]),
        ("`view` raises. A message comes, and `view` is not in it.", []),
    ],
)
def test_a_message_says_what_it_is_said_to_say(prose: str, refused: list[str]) -> None:
    above = "page.md:3: `reshape`: no message under this heading says it"
    reasons = [
        f"page.md:7: `{name}`: no message under this heading says it"
        for name in refused
    ]
    assert problems(prose) == [above, *reasons]
