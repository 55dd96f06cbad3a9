"""Reading every block is reading every key."""

import torch
from benchmarks.blocks import with_blocks
from benchmarks.recall import Recall, draw_pairs


def test_all_blocks_are_all_keys() -> None:
    model = Recall(("softmax",) * 4)
    keys, values, _ = draw_pairs(2, 8, torch.Generator().manual_seed(0))
    before = model(keys, values)
    torch.testing.assert_close(with_blocks(model, 4, 4)(keys, values), before)
    assert (with_blocks(model, 4, 2)(keys, values) - before).abs().max() > 1e-4
