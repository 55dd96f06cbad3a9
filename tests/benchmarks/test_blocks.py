"""Fewer keys: the record that the page on other softmaxes reads."""

import torch
from benchmarks.blocks import CHOICES, measure_blocks, with_blocks
from benchmarks.recall import Recall, draw_pairs

from transformer_book import load_record


def test_all_blocks_are_all_keys() -> None:
    model = Recall(("softmax",) * 4)
    keys, values, _ = draw_pairs(2, 8, torch.Generator().manual_seed(0))
    before = model(keys, values)
    torch.testing.assert_close(with_blocks(model, 4, 4)(keys, values), before)
    assert (with_blocks(model, 4, 2)(keys, values) - before).abs().max() > 1e-4


def test_the_record_has_what_is_measured() -> None:
    quick, record = measure_blocks(quick=True), load_record("blocks")["results"]
    assert quick.keys() == record.keys()
    assert record["seeds"] == [1, 2, 3]
    choices = [f"{size} x {count}" for size, count in CHOICES]
    for name in quick["right"]:
        assert [*record["right"][name]] == choices
        assert all(len(each) == 3 for each in record["right"][name].values())
