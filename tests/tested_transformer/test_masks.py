import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tested_transformer.masks import causal_mask, padding_mask

lengths = st.integers(0, 9)


def test_causal_mask_is_a_lower_triangle():
    assert causal_mask(3).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_fewer_queries_than_keys_are_the_last_ones():
    assert causal_mask(2, 5).tolist() == [
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


def test_more_queries_than_keys_leave_the_first_ones_with_nothing():
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]


@given(num_queries=lengths, num_keys=lengths)
def test_causal_mask_is_tril_on_the_diagonal_that_ends_bottom_right(
    num_queries: int, num_keys: int
):
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    expected = ones.tril(diagonal=num_keys - num_queries)
    assert torch.equal(causal_mask(num_queries, num_keys), expected)


@given(num_keys=st.integers(1, 9), newest=st.integers(1, 9))
def test_decoding_sees_the_last_rows_of_the_whole_mask(num_keys: int, newest: int):
    newest = min(newest, num_keys)
    whole = causal_mask(num_keys)
    assert torch.equal(causal_mask(newest, num_keys), whole[num_keys - newest :])


def test_padding_mask_allows_real_tokens_only():
    mask = padding_mask(torch.tensor([2, 0, 3]))
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [
        [True, True, False],
        [False, False, False],
        [True, True, True],
    ]


@given(
    lengths=st.lists(lengths, min_size=1, max_size=5),
    extra=st.integers(0, 3),
)
def test_padding_mask_counts_the_real_tokens(lengths: list[int], extra: int):
    mask = padding_mask(torch.tensor(lengths), max(lengths) + extra)
    assert mask.shape[-1] == max(lengths) + extra
    assert mask.sum(dim=(1, 2, 3)).tolist() == lengths
    # Real tokens come first: no True stands behind a False.
    assert not (mask[..., 1:] & ~mask[..., :-1]).any()


def test_masks_combine_with_and():
    both = causal_mask(3) & padding_mask(torch.tensor([2, 3]))
    assert both.shape == (2, 1, 3, 3)
    assert both[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, False],
    ]
    assert torch.equal(both[1, 0], causal_mask(3))


def test_masks_are_made_on_the_device_asked_for():
    assert causal_mask(2, device="meta").device.type == "meta"
    assert causal_mask(2).device.type == "cpu"
    lengths = torch.tensor([1, 2])
    with torch.device("meta"):
        assert padding_mask(lengths).device.type == "cpu"


def test_an_empty_batch_has_an_empty_mask():
    assert padding_mask(torch.empty(0, dtype=torch.long)).shape == (0, 1, 1, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: causal_mask(-1), "num_queries=-1 must not be negative"),
        (lambda: causal_mask(2, -3), "num_keys=-3 must not be negative"),
        (
            lambda: padding_mask(torch.tensor([2, 5]), 3),
            r"lengths=\[2, 5\] must lie between 0 and num_keys=3",
        ),
        (
            lambda: padding_mask(torch.tensor([2, -1])),
            r"lengths=\[2, -1\] must lie between 0 and num_keys=2",
        ),
        (
            lambda: padding_mask(torch.tensor([2]), -1),
            "num_keys=-1 must not be negative",
        ),
    ],
)
def test_bad_lengths_are_named(make, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        (
            torch.tensor([2.0, 1.0]),
            TypeError,
            "lengths must be a tensor of whole numbers, not torch.float32",
        ),
        (
            torch.tensor([True, False]),
            TypeError,
            "lengths must be a tensor of whole numbers, not torch.bool",
        ),
        ([2, 1], TypeError, "lengths must be a tensor of whole numbers, not list"),
        (
            torch.tensor([[1, 1, 0], [1, 0, 0]]),
            ValueError,
            "lengths must be (B,), one for each sequence; it is (2, 3)",
        ),
        (
            torch.tensor(3),
            ValueError,
            "lengths must be (B,), one for each sequence; it is ()",
        ),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_what_is_no_length_is_named(lengths, error, message: str):
    with pytest.raises(error) as caught:
        padding_mask(lengths)
    assert str(caught.value) == message


def test_shapes_in_signatures_are_checked_while_the_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError):
        padding_mask(torch.tensor([0.5]))
