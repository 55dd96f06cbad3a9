import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tested_transformer.data.batches import _order, batch_at, num_windows, split


def epoch(
    tokens: Tensor, number: int, *, batch_size: int, seq_len: int, seed: int = 0
) -> Tensor:
    """Return all inputs of an epoch, batch by batch, and check their targets."""
    count = num_windows(len(tokens), seq_len)
    assert count % batch_size == 0
    steps = count // batch_size
    inputs: list[Tensor] = []
    for step in range(number * steps, (number + 1) * steps):
        batch = batch_at(
            tokens, step=step, batch_size=batch_size, seq_len=seq_len, seed=seed
        )
        assert batch[0].shape == batch[1].shape == (batch_size, seq_len)
        # The tokens are their own places.
        assert torch.equal(batch[1], batch[0] + 1)
        inputs.append(batch[0])
    return torch.cat(inputs)


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
    inputs = epoch(
        torch.arange(num_tokens), 3, batch_size=1, seq_len=seq_len, seed=seed
    )
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
    tokens = torch.arange(1_000)
    first, second = (
        epoch(tokens, number, batch_size=3, seq_len=7)[:, 0] for number in (0, 1)
    )
    assert len(first) == len(second) == 141
    assert set((first % 7).tolist()) != set((second % 7).tolist())
    assert not torch.equal(first.argsort(), second.argsort())
    for starts in (first, second):
        assert len(set((starts % 7).tolist())) == 1
        # In random order, one window in two starts before the one that went before.
        down = int((starts.diff() < 0).sum())
        assert 50 < down < 90


def test_every_shift_comes_as_often_as_every_other():
    tokens = torch.arange(33)
    counts = torch.zeros(5)
    epochs = 400
    for number in range(epochs):
        # 5 windows of 5 and shifts of 0 to 4.
        inputs, _ = batch_at(tokens, step=number, batch_size=5, seq_len=5, seed=1)
        assert len(inputs[:, 0].unique()) == 5
        counts[int(inputs[0, 0]) % 5] += 1
    assert counts.sum() == epochs
    assert (counts / epochs - 1 / 5).abs().max() < 4 * math.sqrt(0.16 / epochs)


def test_a_batch_goes_on_into_the_next_epoch():
    tokens = torch.arange(33)
    # 5 windows an epoch, 3 a batch: the second batch has 2 of one and 1 of the next.
    ones = [batch_at(tokens, step=n, batch_size=1, seq_len=5)[0] for n in range(9)]
    for step in range(3):
        inputs, _ = batch_at(tokens, step=step, batch_size=3, seq_len=5)
        assert torch.equal(inputs, torch.cat(ones[3 * step : 3 * step + 3]))
    # One batch may also be longer than epochs.
    inputs, _ = batch_at(tokens, step=0, batch_size=9, seq_len=5)
    assert torch.equal(inputs, torch.cat(ones))


def test_a_batch_depends_on_its_arguments_alone():
    tokens = torch.arange(500)

    def at(step, seed=2):
        return batch_at(tokens, step=step, batch_size=4, seq_len=9, seed=seed)[
            0
        ].tolist()

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
    tokens = torch.arange(200).to(torch.uint8)
    batch_size = rows * world_size
    settings = {"step": step, "batch_size": batch_size, "seq_len": 7, "seed": seed}
    whole = batch_at(tokens, **settings)
    parts = [
        batch_at(tokens, **settings, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert all(len(inputs) == rows for inputs, _ in parts)
    for which in (0, 1):
        assert torch.equal(torch.cat([part[which] for part in parts]), whole[which])


def test_tokens_of_any_whole_number_type():
    dtypes = (torch.uint8, torch.uint16, torch.int16, torch.int32, torch.int64)
    for dtype in dtypes:
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
