import re

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tested_transformer.masks import (
    causal_mask,
    from_additive,
    padding_mask,
    sliding_window_mask,
    to_additive,
    token_mask,
)

lengths = st.integers(0, 9)


@given(num_queries=lengths, num_keys=lengths)
def test_causal_mask_is_tril_on_the_diagonal_that_ends_bottom_right(
    num_queries: int, num_keys: int
):
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    expected = ones.tril(diagonal=num_keys - num_queries)
    assert torch.equal(causal_mask(num_queries, num_keys), expected)


@given(num_queries=lengths, num_keys=lengths, window=st.integers(1, 11))
def test_a_window_counts_back_from_each_query(
    num_queries: int, num_keys: int, window: int
):
    expected = [
        [0 <= t + num_keys - num_queries - s < window for s in range(num_keys)]
        for t in range(num_queries)
    ]
    mask = sliding_window_mask(num_queries, num_keys, window=window)
    assert mask.shape == (num_queries, num_keys)
    assert mask.tolist() == expected


def test_padding_mask_allows_real_tokens_only():
    mask = padding_mask(torch.tensor([2, 0, 3]))
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [
        [True, True, False],
        [False, False, False],
        [True, True, True],
    ]
    longer = padding_mask(torch.tensor([2, 0, 3]), 5)
    assert torch.equal(
        longer, torch.cat([mask, mask[:1, ..., 2:].expand(3, 1, 1, 2)], -1)
    )
    assert padding_mask(torch.empty(0, dtype=torch.long)).shape == (0, 1, 1, 0)


def test_token_mask_allows_real_tokens_wherever_they_stand():
    real = torch.tensor([[False, True, True], [True, False, True]])
    for flags in (real, real.int(), real.long()):
        mask = token_mask(flags)
        assert (mask.shape, mask.dtype) == ((2, 1, 1, 3), torch.bool)
        assert torch.equal(mask[:, 0, 0], real)
    assert token_mask(torch.ones(0, 3).bool()).shape == (0, 1, 1, 3)


def test_an_additive_mask_is_zero_or_minus_infinity():
    mask = torch.tensor([[True, False, True]])
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        added = to_additive(mask, dtype)
        assert added.dtype == dtype
        assert added.tolist() == [[0.0, float("-inf"), 0.0]]
    assert to_additive(mask).dtype == torch.float32


@given(shape=st.lists(st.integers(0, 3), max_size=4), seed=st.integers(0, 99))
def test_an_additive_mask_comes_back(shape: list[int], seed: int):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < 0.5
    assert torch.equal(from_additive(to_additive(mask)), mask)


def test_the_lowest_number_forbids_as_minus_infinity_does():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        lowest = torch.finfo(dtype).min
        added = torch.tensor([0.0, lowest, float("-inf")], dtype=dtype)
        assert from_additive(added).tolist() == [True, False, False], dtype


def test_masks_are_made_on_the_device_asked_for():
    assert causal_mask(2, device="meta").device.type == "meta"
    assert sliding_window_mask(2, window=1, device="meta").device.type == "meta"
    assert to_additive(causal_mask(2, device="meta")).device.type == "meta"
    assert causal_mask(2).device.type == "cpu"
    lengths = torch.tensor([1, 2])
    with torch.device("meta"):
        assert padding_mask(lengths).device.type == "cpu"


def window_of_five(window: int) -> Tensor:
    return sliding_window_mask(5, window=window)


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (causal_mask, -1, "num_queries=-1 must not be negative"),
        (
            causal_mask,
            torch.ones(2, 3),
            "num_queries must be a whole number; it is a",
        ),
        (window_of_five, 2.5, "window must be a whole number; it is 2.5"),
        (window_of_five, 0, "window=0 must be positive"),
        (padding_mask, torch.tensor([2, -1]), "lengths=[2, -1] must lie between 0 and"),
        (padding_mask, torch.tensor([2.0, 1.0]), "lengths must be a tensor of"),
        (padding_mask, torch.tensor([True, False]), "lengths must be a tensor of"),
        (
            padding_mask,
            torch.ones(2, 3).long(),
            "lengths must be (B,), one for each",
        ),
        (
            padding_mask,
            [2],
            "lengths must be a tensor; it is a list: write torch.as_",
        ),
        (token_mask, [[True]], "real must be a tensor; it is a list"),
        (token_mask, torch.tensor([[1.0, 0.0]]), "real must be booleans, or"),
        (token_mask, torch.tensor([2, 1]), "real must be (B, S), one row for"),
        (token_mask, torch.tensor([[1, -1]]), "real must hold ones and zeros"),
        (to_additive, [True], "mask must be a tensor; it is a list"),
        (to_additive, torch.tensor([1, 0]), "mask must be boolean (True = may"),
        (from_additive, [0.0], "added must be a tensor; it is a list"),
        (from_additive, torch.tensor([True]), "added must be floating-point"),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_what_makes_no_mask_is_named(make, value, message: str):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        make(value)


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"^num_keys=-3 must not be negative$"):
        causal_mask(2, -3)
    with pytest.raises(ValueError, match=r"^num_keys=-1 must not be negative$"):
        padding_mask(torch.tensor([2]), -1)
    message = r"^lengths=\[2, 5\] must lie between 0 and num_keys=3$"
    with pytest.raises(ValueError, match=message):
        padding_mask(torch.tensor([2, 5]), 3)
    with pytest.raises(ValueError, match=r"^window=0 must be positive$"):
        sliding_window_mask(3, window=0)


def test_what_would_only_shift_a_score_is_no_mask():
    for value in (1.0, -10000.0, float("inf"), float("nan")):
        message = (
            "added must hold 0 where a query may attend and -inf where not; "
            f"it holds {value:g}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            from_additive(torch.tensor([0.0, value, float("-inf")]))


@pytest.mark.parametrize("where", ["meta", "fake"])
def test_masks_are_made_without_numbers(where: str):
    with torch.device("meta") if where == "meta" else FakeTensorMode():
        mask = padding_mask(torch.tensor([3, 5, 2]), 7) & causal_mask(4, 7)
        tokens = token_mask(torch.ones(3, 7, dtype=torch.long))
        with pytest.raises(ValueError, match=r"^num_keys must be given"):
            padding_mask(torch.tensor([3, 5, 2]))
    assert mask.shape == (3, 1, 4, 7)
    assert tokens.shape == (3, 1, 1, 7)
