"""Following every random decision: each way once, with its probability."""

import pytest
import torch

from transformer_book.outcomes import every_outcome


def test_every_way_is_followed_once():
    def run(rng):
        first = rng.accepts(0.25)
        return first, rng.draw(torch.tensor([0.5, 0.0, 0.5])) if first else None

    expected = {(False, None): 0.75, (True, 0): 0.125, (True, 2): 0.125}
    assert every_outcome(run) == pytest.approx(expected)
