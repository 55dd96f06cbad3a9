"""A block can neither leave the test run nor change it for the blocks after it."""

import builtins
import os

import pytest
import torch
import torch.nn.functional as F

from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.page import read_page
from bookbinder.running.staying import LeftBehindError, nothing_left_behind, staying


@pytest.mark.parametrize("way", ["_exit", "abort", "fork", "execv"])
def test_there_is_no_way_out(way: str):
    before = getattr(os, way)
    with staying(), pytest.raises(RuntimeError, match=r"^a block may not leave"):
        getattr(os, way)(0)
    assert getattr(os, way) is before


def test_what_is_replaced_is_named_and_put_back():
    forward, length = torch.nn.Linear.forward, builtins.len

    def replace() -> None:
        with nothing_left_behind():
            torch.nn.Linear.forward = lambda self, x: x
            builtins.len = lambda x: 0

    with pytest.raises(LeftBehindError) as refused:
        replace()
    assert str(refused.value) == (
        "this leaves builtins.len, torch.nn.modules.linear.Linear.forward replaced for "
        "every block after it: put back what you patch"
    )
    assert torch.nn.Linear.forward is forward
    assert len is builtins.len is length


def test_an_error_of_the_block_comes_first():
    softmax = torch.softmax

    def fail() -> None:
        with nothing_left_behind():
            torch.softmax = None
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        fail()
    assert torch.softmax is softmax


def test_who_puts_back_may_replace():
    with nothing_left_behind():
        kept = torch.nn.Linear.forward
        torch.nn.Linear.forward = lambda self, x: x
        torch.nn.Linear.forward = kept


def test_a_page_is_told_at_its_line(tmp_path):
    code = "import torch\n\ntorch.nn.Linear.forward = print"
    page = read_page(f"# A page\n\n```python\n{code}\n```\n", "page.md")
    (problem,) = evidence_problems(page, Evidence(), tmp_path)
    assert str(problem).startswith(
        "page.md:3: bookbinder.running.staying.LeftBehindError: "
        "this leaves torch.nn.modules."
    )


def test_another_function_of_pytorch_is_refused_too():
    before = F.softmax
    with (
        pytest.raises(LeftBehindError, match=r"functional\.softmax replaced"),
        nothing_left_behind(),
    ):
        F.softmax = F.log_softmax
    assert F.softmax is before
