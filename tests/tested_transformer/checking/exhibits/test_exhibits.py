"""The exhibits: each wrong somewhere, each where the book says that it is."""

import re

import pytest
import torch

from tested_transformer.checking import EXHIBITS, ExchangeableAttention, Steps
from tested_transformer.checking.exhibits.exhibit import Publication, issue, pull
from transformer_book.museum import exhibit_layer


def test_there_are_enough_and_most_were_published():
    assert len(EXHIBITS) >= 25
    assert sum(bool(each.published) for each in EXHIBITS.values()) >= 25


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_replaces_one_step_and_keeps_every_shape(name):
    exhibit = EXHIBITS[name]
    right = Steps()
    changed = [
        step
        for step in Steps.__dataclass_fields__
        if getattr(exhibit.steps, step) is not getattr(right, step)
    ]
    assert changed == [exhibit.step]
    assert re.fullmatch(r"[A-Z][^.]*\.", exhibit.mistake)
    layer = exhibit_layer(exhibit.steps)
    assert isinstance(layer, ExchangeableAttention)
    x = torch.randn(3, 7, 20)
    for causal in (False, True):
        output, weights = layer(x, causal=causal, return_weights=True)
        assert output.shape == x.shape
        if weights is not None:
            assert weights.shape == (3, 4, 7, 7)


def test_a_publication_knows_its_address():
    assert issue("a/b", 7, "2020, open").url == "https://github.com/a/b/issues/7"
    assert str(pull("a/b", 7, "2021, merged")) == "a/b #7 (2021, merged)"
    of_file = Publication("a/b", "c/d.py")
    assert str(of_file) == "a/b d.py"
    assert of_file.url == "https://github.com/a/b"
