"""Each known bug is caught, and named, in layers of several kinds."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.attention_check.layers import Plain, Stepped, call, pieces, plain_reference

from attention_check import EXHIBITS, KNOWN, Report, check_attention

# What no use tells apart: the candidates are named together.
ALIKE = (
    {"no-causal-mask", "lost-with-dropout"},
    {"scores-times-mask", "tiny-fill"},
    {"nan-in-empty-rows", "nan-replaced"},
    {"dropout-while-evaluating", "dropout-with-a-literal"},
)


KINDS = ("own", "packed", "rotary")
# Bugs of positions, sharing, batch or cache.
WITH_ROTARY = (
    *("rotary-on-queries-alone", "rotary-on-keys-alone", "rotary-restarts"),
    *("positions-on-heads", "keys-tiled", "values-tiled", "old-keys-lost"),
    *("keys-of-the-first-sequence", "values-of-the-queries-sequence"),
    *("new-before-old", "keys-and-values-exchanged-in-the-cache"),
    "angles-of-the-other-pairing",
)


def report_on(layer: Stepped, **settings: Any) -> Report:
    return check_attention(layer, call=call, like=layer.right, lengths=(7,), **settings)


@pytest.mark.parametrize("first", range(3))
def test_an_exhibit_is_caught_and_named(first: int) -> None:
    """Every third exhibit in a layer of one kind, and those after it in the next."""
    for name in [*EXHIBITS][first::3]:
        exhibit = KNOWN[name]
        report = report_on(Stepped(exhibit, KINDS[first]), pieces=pieces)
        names = {*report.names}
        assert name in names, str(report)
        assert names == {name} or names in ALIKE, str(report)
        # Scores above 700 are met in practice.
        wrong = not exhibit.reach or name == "no-maximum-taken"
        assert report.state == ("wrong" if wrong else "within limits"), name


def test_a_bug_of_positions_sharing_batch_or_cache_is_named() -> None:
    for name in WITH_ROTARY:
        report = report_on(Stepped(KNOWN[name], "rotary"), pieces=pieces)
        assert report.names == (name,), str(report)


def test_a_lost_mask_is_named_if_that_of_padding_is_lost_with_it() -> None:
    for name in ("no-causal-mask", "only-while-training"):
        layer = Stepped(KNOWN[name], "own")
        layer.own.steps = replace(layer.own.steps, hide=lambda real: None)
        report = report_on(layer)
        assert name in report.names, str(report)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_split_and_merged_without_the_transpose_are_named(kind: str) -> None:
    """The usual pair of mistakes: each undoes the shape of the other."""
    split, merge = (KNOWN[f"{step}-without-transpose"] for step in ("split", "merge"))
    layer = Stepped(split, kind)
    layer.own.steps = replace(split.steps, merge=merge.function)
    report = report_on(layer)
    assert report.names == (split.name,), str(report)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_layer_is_right(kind: str) -> None:
    layer = Stepped(None, kind)
    report = check_attention(layer, call=call, like=layer.right, pieces=pieces)
    assert (report.state, report.failed, report.names) == ("right", [], ()), str(report)
    assert "in pieces" in str(report).splitlines()[0]


def test_a_mask_that_leaves_a_query_nothing_is_named_with_a_finite_fill() -> None:
    """Then weights are even where there should be none, without any padding."""
    for name, allowed in (
        ("without-itself", lambda length: torch.ones(length, length).tril(-1)),
        ("inverted-mask", lambda length: torch.ones(length, length).triu(1)),
    ):
        layer = Plain()
        layer.allow = lambda length, allowed=allowed: allowed(length).bool()
        layer.weigh = lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(-1)
        report = check_attention(
            layer,
            call=lambda layer, x: layer(x),
            like=plain_reference(layer),
            causal=True,
            lengths=(7,),
        )
        assert report.names == (name,), str(report)
