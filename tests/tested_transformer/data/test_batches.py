import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tested_transformer.data.batches import _order, batch_at, num_windows, split


def inputs_at(step: int, *, num_tokens: int, **settings: int) -> Tensor:
    """Return the inputs of a batch of tokens that are their own places."""
    sizes = {"batch_size": 1, "seq_len": 5} | settings
    inputs, targets = batch_at(torch.arange(num_tokens), step=step, **sizes)
    rows = sizes["batch_size"] // sizes.get("world_size", 1)
    assert inputs.shape == targets.shape == (rows, sizes["seq_len"])
    assert torch.equal(targets, inputs + 1)
    return inputs


def epoch(number: int, *, num_tokens: int, seq_len: int, **settings: int) -> Tensor:
    """Return all inputs of an epoch."""
    count = num_windows(num_tokens, seq_len)
    sizes = {"num_tokens": num_tokens, "seq_len": seq_len, "batch_size": count}
    return inputs_at(number, **sizes, **settings)


def test_split_keeps_the_order_and_the_memory():
    tokens = torch.arange(11)
    train, validation = split(tokens)
    assert train.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert validation.tolist() == [9, 10]
    assert train.data_ptr() == tokens.data_ptr()
    assert [len(part) for part in split(tokens, 0.5)] == [5, 6]
    # The usual split of tiny Shakespeare.
    assert len(split(torch.empty(1_115_394, dtype=torch.uint8))[0]) == 1_003_854


def test_a_split_with_an_empty_part_is_refused():
    for tokens, fraction, parts in (
        (3, 0.2, "0 for training and 3 for validation"),
        (3, 1.0, "3 for training and 0 for validation"),
        (4, -0.5, "-2 for training and 6 for validation"),
    ):
        message = f"fraction={fraction} of {tokens} tokens leaves {parts}; both need "
        with pytest.raises(ValueError, match=f"^{message}some$"):
            split(torch.arange(tokens), fraction)


@given(
    num_tokens=st.integers(2, 200), seq_len=st.integers(1, 40), seed=st.integers(0, 99)
)
def test_windows_of_an_epoch_lie_side_by_side(num_tokens, seq_len, seed):
    seq_len = min(seq_len, num_tokens - 1)
    inputs = epoch(3, num_tokens=num_tokens, seq_len=seq_len, seed=seed)
    seen = inputs.flatten().sort().values
    first, last = int(seen[0]), int(seen[-1])
    assert seen.tolist() == list(range(first, last + 1))
    # The last token of all is never an input.
    assert last < num_tokens - 1
    assert num_tokens - 1 - len(seen) < 2 * seq_len


def test_an_epoch_has_one_window_less_than_fits_and_at_least_one():
    # 22 tokens hold windows of 7 that begin at 0, 7 and 14.
    counts = {22: 2, 21: 2, 20: 1, 8: 1}
    assert {tokens: num_windows(tokens, 7) for tokens in counts} == counts


def test_the_next_epoch_cuts_elsewhere_and_shuffles_anew():
    first, second = (
        epoch(number, num_tokens=1_000, seq_len=7)[:, 0] for number in (0, 1)
    )
    assert len(first) == len(second) == 141
    assert not torch.equal(first.argsort(), second.argsort())
    for starts in (first, second):
        assert len(set((starts % 7).tolist())) == 1
        # In random order, one window in two starts before the one that went before.
        assert 50 < int((starts.diff() < 0).sum()) < 90
    assert first[0] % 7 != second[0] % 7


def test_every_shift_comes_as_often_as_every_other():
    # 33 tokens have 5 windows of 5, and shifts of 0 to 4.
    epochs = [epoch(n, num_tokens=33, seq_len=5, seed=1)[:, 0] for n in range(400)]
    assert all(len(starts.unique()) == 5 for starts in epochs)
    shares = torch.tensor([int(starts[0]) % 5 for starts in epochs]).bincount() / 400
    assert (shares - 1 / 5).abs().max() < 4 * math.sqrt(0.16 / 400)


def test_a_batch_goes_on_into_the_next_epoch():
    # 5 windows an epoch, 3 a batch: the second batch has 2 of one and 1 of the next.
    # One batch may also be longer than epochs.
    all_rows = torch.cat([inputs_at(n, num_tokens=33) for n in range(9)])
    for size in (3, 9):
        for step, rows in enumerate(all_rows.split(size)):
            assert torch.equal(inputs_at(step, num_tokens=33, batch_size=size), rows)


def test_a_batch_depends_on_its_arguments_alone():
    def at(step, seed=2):
        return inputs_at(step, num_tokens=500, batch_size=4, seed=seed).tolist()

    forward = [at(step) for step in range(40)]
    _order.cache_clear()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert [at(step) for step in reversed(range(40))] == forward[::-1]
    assert torch.equal(torch.get_rng_state(), state)
    assert at(0, seed=3) != forward[0]
    assert at(0, seed=-2) != forward[0]


@given(
    step=st.integers(0, 50),
    rows=st.integers(1, 4),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_the_processes_share_the_batch_that_one_would_see(step, rows, world_size, seed):
    sizes = {"num_tokens": 200, "batch_size": rows * world_size, "seed": seed}
    parts = [
        inputs_at(step, rank=rank, world_size=world_size, **sizes)
        for rank in range(world_size)
    ]
    assert torch.equal(torch.cat(parts), inputs_at(step, **sizes))


def test_tokens_of_any_whole_number_type():
    for dtype in (torch.uint8, torch.uint16, torch.int16, torch.int32, torch.int64):
        tokens = (torch.arange(60) * 3).to(dtype)
        inputs, targets = batch_at(tokens, step=1, batch_size=2, seq_len=11)
        assert inputs.dtype == targets.dtype == torch.int64, dtype
        assert inputs.is_contiguous()
        assert targets.is_contiguous()
        assert torch.equal(targets, inputs + 3), dtype
        assert len(split(tokens)[1]) == 6
    tokens = torch.full((9,), 65_535).to(torch.uint16)
    inputs, _ = batch_at(tokens, step=0, batch_size=1, seq_len=3)
    assert inputs.tolist() == [[65_535] * 3]
    tokens = torch.empty(50, dtype=torch.int64, device="meta")
    batch = batch_at(tokens, step=0, batch_size=2, seq_len=3)
    assert {part.device.type for part in batch} == {"meta"}


def test_what_makes_no_batch_is_named():
    usual = {"step": 0, "batch_size": 6, "seq_len": 3}
    for settings, message in (
        ({"seq_len": 11}, "11 tokens are too few for seq_len=11: at least 12 are "),
        ({"seq_len": 0}, "seq_len=0 must be positive"),
        ({"step": -1}, "step=-1 must not be negative"),
        ({"batch_size": 0}, "batch_size=0 must be positive"),
        ({"world_size": 0}, "world_size=0 must be positive"),
        ({"world_size": 4}, "batch_size=6 must be divisible by world_size=4"),
        ({"world_size": 3, "rank": 3}, "rank=3 must lie between 0 and world_size - 1"),
        ({"rank": -1}, "rank=-1 must lie between 0 and world_size - 1=0"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            batch_at(torch.arange(11), **usual | settings)
