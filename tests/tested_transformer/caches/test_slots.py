"""Slots of unlike lengths go on and back each by itself."""

import torch

from tested_transformer.cache import DenseCache
from tested_transformer.caches import SlotCache, SlotLayer


def test_slots_of_unlike_lengths_go_back_to_no_more_than_they_hold() -> None:
    slots = SlotLayer(*torch.zeros(2, 3, 1, 7, 4))
    cache = SlotCache([slots])
    for slot, length in ((0, 5), (2, 2)):
        k = torch.full((1, 1, length, 4), slot + 1.0)
        one = DenseCache(*torch.zeros(2, 1, 1, 7, 4))
        one.append(k, -k)
        slots.take_over(slot, one)
    assert (cache.lengths, cache.length) == ([5, 0, 2], 5)
    cache.rewind(3)
    assert (cache.lengths, slots.ends.tolist()) == ([3, 0, 2], [3, 0, 2])
    new = torch.full((3, 1, 1, 4), 9.0)
    keys, values = slots.append(new, -new)
    assert cache.lengths == slots.ends.tolist() == [4, 1, 3]
    assert keys[0, 0, :, 0].tolist() == [1, 1, 1, 9]
    assert keys[1, 0, 0, 0] == 9
    assert keys[2, 0, :3, 0].tolist() == [3, 3, 9]
    assert torch.equal(values, -keys)
    cache.release(0)
    assert (cache.lengths, slots.ends.tolist()) == ([0, 1, 3], [0, 1, 3])
