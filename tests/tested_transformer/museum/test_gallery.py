"""The exhibits: each wrong somewhere, each where the book says that it is."""

import re
from pathlib import Path

import pytest
import torch

from tested_transformer.museum import EXHIBITS, ExchangeableAttention, Steps
from tested_transformer.museum.exhibit import Publication, file, issue, pull
from tested_transformer.museum.matrix import exhibit_layer

PAGE = Path(__file__).parents[3] / "docs" / "chapters" / "24-the-bug-museum.md"


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


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_page_shows_it_with_every_place_where_it_was_published(name):
    text = PAGE.read_text("utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    (section,) = [
        each
        for each in sections
        if each.partition("\n")[0].lower().replace(" ", "-") == name
    ]
    listed = re.findall(r'^--8<-- "src/.*:(\w+)"$', section, re.MULTILINE)
    assert name.replace("-", "_") in listed or name == "backward-without-mask"
    links = set(re.findall(r"\]\((https://github\.com/[^)]+)\)", section))
    assert links == {each.url for each in EXHIBITS[name].published}


def test_a_publication_knows_its_address():
    assert issue("a/b", 7, "2020, open").url == "https://github.com/a/b/issues/7"
    assert str(pull("a/b", 7, "2021, merged")) == "a/b #7 (2021, merged)"
    of_file = file("a/b", "c/d.py")
    assert of_file == Publication("a/b", "c/d.py")
    assert str(of_file) == "a/b d.py"
    assert of_file.url == "https://github.com/a/b"
