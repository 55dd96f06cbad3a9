"""How sequences of different lengths lie side by side."""

import pytest

from tested_transformer.decoding import pad_left


def test_all_end_together():
    tokens, positions, mask = pad_left([[5, 6], [1, 2, 3, 4], [7]])
    assert tokens.tolist() == [[0, 0, 5, 6], [1, 2, 3, 4], [0, 0, 0, 7]]
    assert positions.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert mask.shape == (3, 1, 1, 4)
    assert mask.sum(-1).flatten().tolist() == [2, 4, 1]
    assert mask[..., -1].all()
    tokens, positions, mask = pad_left([[5, 6], [1, 2]])
    assert (tokens.tolist(), positions, mask) == ([[5, 6], [1, 2]], None, None)


@pytest.mark.parametrize("last", [[3], [3, 4]])
def test_they_lie_where_they_are_wanted(last):
    tensors = [x for x in pad_left([[1, 2], last], device="meta") if x is not None]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
