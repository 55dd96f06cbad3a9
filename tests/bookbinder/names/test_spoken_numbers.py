"""A number in a comment behind code is one of that line, or of what it made."""

from collections.abc import Callable
from typing import Any

import pytest

from bookbinder.names.spoken_numbers import spoken_number_problems
from bookbinder.reading.pages import read_page

Problems = Callable[[str, str], list[str]]
PAGE = """# Numbers

```python
import torch
from torch import nn

from tested_transformer import MultiHeadAttention

x = torch.randn(3, 5, 8)  # B = 3, T = 5, D = 8
context = torch.randn(3, 7, 11)  # B = 3, S = 7, 11 wide
square = torch.eye(3)  # B = 3
real = torch.ones(5, 5)  # T = 5: as many as there are in x; see https://a.org/404
weight = torch.cat([torch.ones(21, 21)] * 3)  # 21 -> 63
parts = weight.split(9)  # seven parts of 9 rows
mask = square[:, None]  # three axes, (B, 1, B)
mask[2] = 0.0  # query 2 sees nothing
last = weight[-1]  # row 20 of what is left; columns 0 to 20
table = nn.Embedding(4, 6)  # four positions, the fifth is none
products = 1
products += 3 * products  # one forward, two backward
scale = x.shape[2] ** 0.5 / 2  # half of it
assert 8192**2 * 4 == 256 * 2**20  # 268,435,456 bytes, or 256 MiB
attend = MultiHeadAttention(d_model=8, num_heads=2)
bias = torch.zeros(8)
attend.q_proj.bias.data[4] = 1.0  # feature 0 of head 1
keys = x[:, :, :4]  # of two heads; GPT-17 has more
source = torch.tensor([[5, 8, 6], [7, 4, 0]])  # 0 is padding
real = source != 0
tokens = [4, 0, 2]  # 4 0 2
for row in source.tolist():  # two rows of (B, 9)
    if row:  # a word of three: 3
        assert len(row) == 3
word, L, C = 4, 9, 2
assert word == 4
order = torch.arange(4).flip(0) * 3  # 9 6 3 0
deep = torch.zeros(2, 5)  # C = 2


def deeper():
    return L + 1  # than L = 9


again = attend(deeper() * x)  # by H = 2
```

<!--pytest-codeblocks:cont-->
```python
T = [4, 6]
other = torch.zeros(*T)  # B = 4, T = 6
```

```python
q = [3, 4]  # B = 2
B = len(q)  # 2 of them
```
"""


@pytest.fixture
def problems(slipped: Callable[[str, str], Any]) -> Problems:
    return lambda right, wrong: [
        str(p) for p in spoken_number_problems(*slipped(right, wrong))
    ]


def test_numbers_that_are_there_are_accepted(problems: Problems) -> None:
    assert problems("# Numbers", "# Numbers") == []


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("T = 5, D = 8", "D = 8, T = 5",
         "9: this says 3, 8, 5, in this order: its line has 3, 5, 8, and what is assi"
         "gned is (3, 5, 8) in the run; what no run can know is for the prose"),
        ("S = 7, 11 wide", "S = 5, 11 wide", "10: this says 3, 5, in this order: "),
        ("S = 7, 11 wide", "S = 7, 7 wide", "10: this says 7: its line has 3, 7, 11"),
        ("torch.eye(3)  # B = 3", "torch.eye(4)  # B = 4",
         "11: this says B = 4, but B is 3"),
        ("# T = 5: as", "# T = 3: as", "12: this says T = 3, but T is 5"),
        ("see https://a.org/404", "see 404", "12: this says 404: its line has 5, "),
        ("# 21 -> 63", "# 21 -> 36", "13: this says 21 -> 36: its line has 3, 21, an"),
        ("# 21 -> 63", "# 63 -> 21", "13: this says 63 -> 21: its line has 3, 21, an"),
        ("# 21 -> 63", "# 20 -> 63", "13: this says 20 -> 63: its line has 3, 21, an"),
        ("# seven parts of 9", "# eight parts of 9", "14: this says eight: its line"),
        ("# seven parts of 9", "# seven parts of 6", "14: this says 6: its line has"),
        ("# three axes", "# two axes", "15: this says two: its line has no number"),
        ("# query 2 sees", "# query 1 sees", "16: this says 1: its line has 0.0, 2"),
        ("# query 2 sees", "# query 0 sees", "16: this says 0: its line has 0.0, 2"),
        ("# row 20 of", "# row 21 of", "17: this says 21: its line has 1, and what"),
        ("columns 0 to 20", "columns 0 to 21", "17: this says 21: its line has 1"),
        ("# four positions,", "# five positions,", "18: this says five: its line has"),
        ("# one forward, two", "# one forward, five", "20: this says five: its line"),
        ("# half of it", "# a third of it", "21: this says third: its line has "),
        ("# 268,435,456 b", "# 268,435,465 b", "22: this says 268,435,465: its line"),
        ("feature 0 of head 1", "feature 0 of head 2", "25: this says 2: its line "),
        ("feature 0 of head 1", "feature 2 of head 1", "25: this says 2: its line "),
        ("# of two heads", "# of seven heads", "26: this says seven: its line has 4"),
        ("# 0 is padding", "# 4 is padding",
         "27: this says 4, but the code asks for 0"),
        ("# 4 0 2", "# 4 1 2", "29: this says 1: its line has 4, 0, 2"),
        ("# two rows", "# nine rows", "30: this says nine: its line has 3"),
        ("three: 3", "three: 4", "31: this says 4: its line has 3 in the run"),
        ("# 9 6 3 0", "# 9 7 3 0", "35: this says 7: its line has 3, 0, 4, and what"),
        ("# C = 2", "# C = 5", "36: this says C = 5, but C is 2"),
        ("than L = 9", "than L = 8", "40: this says L = 8, but L is 9"),
        ("by H = 2", "by H = 4", "43: this says 4, in this order: its line has no"),
        ("q = [3, 4]  # B = 2", "q = [3, 4]  # B = 5", "53: this says 5, in this or"),
    ],
)  # fmt: skip
def test_another_number_is_refused(
    right: str, wrong: str, reason: str, problems: Problems
) -> None:
    (problem,) = problems(right, wrong)
    assert problem.startswith(f"page.md:{reason}"), problem


def test_what_is_not_python_is_told_elsewhere() -> None:
    page = read_page("```python\nx = (  # 5\n```\n", "page.md")
    assert spoken_number_problems(page, {}) == []


def test_what_never_ran_is_told_elsewhere() -> None:
    page = read_page("```python\nx = 1  # 5\n```\n", "page.md")
    assert spoken_number_problems(page, {}) == []
