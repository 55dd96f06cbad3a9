"""A function that is recorded, then replayed; what records stands in for a GPU."""

import torch

from tested_transformer.replay import Replay


def test_a_function_runs_once_and_is_replayed_from_then_on(recordings):
    total, seen = torch.zeros(()), []

    def add(x, y):
        seen.append(x.shape)
        total.add_(x.sum())
        return (x if y is None else x * y) + total

    replayed, sum_so_far = Replay(add), 0.0
    for length, factor in ((3, 2.0),) * 4 + ((2, 2.0), (2, None), (2, None), (2, None)):
        x = torch.randn(length)
        sum_so_far += x.sum()
        y = None if factor is None else torch.full((length,), factor)
        result = replayed(x, y)
        expected = (factor or 1.0) * x + sum_so_far
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(total, sum_so_far)
    # Each shape as it is, and once more to record it.
    assert [*map(len, map(torch.empty, seen))] == [3, 3, 2, 2, 2]
    assert [
        [None if x is None else len(x) for x in recording] for recording in recordings
    ] == [
        [3, 3],
        [2, None],
    ]


def test_a_result_outlasts_the_next(recordings):
    replayed = Replay(lambda x: x + 1)
    first, second, third = (replayed(torch.tensor([x])) for x in (1.0, 5.0, 9.0))
    assert (first.item(), second.item(), third.item()) == (2.0, 6.0, 10.0)
    assert len(recordings) == 1
