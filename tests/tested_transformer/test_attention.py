"""The open attention is held against arithmetic, and against PyTorch's own."""

import math
import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor

from tested_transformer.attention import (
    attention_scores,
    attention_weights,
    attention_with_weights,
)
from tested_transformer.kernels import fused_attention
from tested_transformer.masks import (
    causal_mask,
    from_additive,
    padding_mask,
    sliding_window_mask,
    token_mask,
)

# Pairwise different, so that no two axes can be taken for each other.
B, H, T, S, D_K, D_V = 2, 3, 5, 7, 11, 13

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def fused(*inputs: Tensor, **options) -> tuple[Tensor, None]:
    """Attend fused, and return what the open attention does but for the weights."""
    return fused_attention(*inputs, **options), None


open_and_fused = pytest.mark.parametrize("attend", [attention_with_weights, fused])


def sequences(
    *, t: int = T, s: int = S, d_v: int = D_K, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return q, k and v that require gradients."""
    return [
        torch.randn(B, H, length, width, dtype=dtype, requires_grad=True)
        for length, width in ((t, D_K), (s, D_K), (s, d_v))
    ]


def some_keys(t: int, s: int) -> Tensor:
    """Allow about half the pairs; the second query of each sequence gets nothing."""
    mask = torch.rand(B, H, t, s) < 0.5
    mask[:, :, 0, 0] = True
    if t > 1:
        mask[:, :, 1] = False
    return mask


def test_three_tokens_on_paper():
    # sqrt(4) = 2, so the scores are (ln 1, ln 2, ln 5): weights 1/8, 2/8, 5/8.
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[0.0] * 4, [math.log(2)] + [0.0] * 3, [math.log(5)] + [0.0] * 3])
    v = torch.tensor([[8.0, 0.0], [0.0, 8.0], [16.0, -8.0]])
    output, weights = attention_with_weights(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.125, 0.25, 0.625]]))
    torch.testing.assert_close(output, torch.tensor([[11.0, -3.0]]))


def test_the_open_attention_is_pytorchs():
    inputs = sequences(d_v=D_V, dtype=torch.float64)
    padding, row = padding_mask(torch.tensor([S, 0]), S), torch.arange(S)[None] % 2 == 0
    for mask in (None, padding, some_keys(T, S), row):
        ours, _ = attention_with_weights(*inputs, mask=mask)
        theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
        assert_alike(ours, theirs, inputs)


@pytest.mark.parametrize(("t", "s"), [(T, S), (S, T), (S, S), (1, S)])
def test_causal_and_window_are_short_for_their_masks(t: int, s: int):
    inputs = sequences(t=t, s=s)
    past = {w: sliding_window_mask(t, s, window=w) for w in (1, 3, S + 3)}
    for window, seen in {None: causal_mask(t, s), **past}.items():
        for causal in (True, False) if window else (True,):
            for mask in (None, some_keys(t, s)):
                options = {"mask": mask, "causal": causal, "window": window}
                both = seen if mask is None else seen & mask
                torch.testing.assert_close(
                    attention_with_weights(*inputs, **options),
                    attention_with_weights(*inputs, mask=both),
                )


@open_and_fused
def test_any_number_of_axes_may_stand_in_front(attend):
    q, k, v = (x.detach() for x in sequences())
    for options in ({"causal": True}, {"window": 3}):
        expected, _ = attend(q, k, v, **options)
        for index in ((0,), (0, 1), (slice(None), slice(None), None)):
            output, _ = attend(q[index], k[index], v[index], **options)
            torch.testing.assert_close(output, expected[index])


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
def test_heads_that_share_keys_see_copies_of_them(num_kv_heads: int):
    q = torch.randn(B, 6, T, D_K)
    k, v = torch.randn(2, B, num_kv_heads, S, D_K)
    copies = [
        torch.stack([x[:, h * num_kv_heads // 6] for h in range(6)], 1) for x in (k, v)
    ]
    options = {"mask": torch.rand(B, 6, 1, S) < 0.6, "causal": True}
    torch.testing.assert_close(
        attention_with_weights(q, k, v, **options),
        attention_with_weights(q, *copies, **options),
    )


@open_and_fused
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_with_nothing_to_attend_to_gives_zeros(attend, dtype: torch.dtype):
    inputs = sequences(dtype=dtype)
    # Not even on the way back is there a NaN: anomaly mode would stop at it.
    with torch.autograd.set_detect_anomaly(True):
        output, weights = attend(*inputs, mask=some_keys(T, S))
        total = output.sum() + (0 if weights is None else weights.sum())
        gradients = torch.autograd.grad(total, inputs)
    assert output[:, :, 1].eq(0).all()
    assert output[:, :, 0].ne(0).any()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0][:, :, 1].eq(0).all()


@given(
    t=st.integers(1, 6),
    s=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_rows_of_weights_sum_to_one_or_are_empty(
    t: int, s: int, seed: int, spread: float
):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(t, s, generator=generator) * spread
    mask = torch.rand(t, s, generator=generator) < 0.5
    weights = attention_weights(scores, mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())
    assert weights[~mask].eq(0).all()
    assert weights.ge(0).all()
    # A score of -inf forbids as a mask does.
    hidden = scores.masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(attention_weights(hidden), weights)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_score_is_large_enough_to_beat_a_mask(dtype: torch.dtype):
    limits = torch.finfo(dtype)
    scores = torch.tensor([[limits.min, limits.max]], dtype=dtype)
    weights = attention_weights(scores, torch.tensor([[True, False]]))
    assert weights.tolist() == [[1.0, 0.0]]


def test_half_precision_scores_do_not_overflow_on_the_way():
    q = torch.full((1, 4096), 8.0, dtype=torch.float16)
    # The bare dot product, 262144, is beyond float16; divided by 64 it is 4096.
    assert attention_scores(q, q).item() == 4096.0


def test_scale_multiplies_the_dot_products_and_the_bias_is_added():
    q, k, v = sequences()
    bias = torch.randn(1, H, T, S, dtype=torch.float64)
    for scale, factor in ((None, D_K**-0.5), (-0.7, -0.7), (0.0, 0.0)):
        scores = q @ k.mT * factor
        torch.testing.assert_close(attention_scores(q, k, scale=scale), scores)
        weights = (scores + bias.float()).softmax(-1)
        torch.testing.assert_close(
            attention_with_weights(q, k, v, scale=scale, score_bias=bias),
            (weights @ v, weights),
        )


@open_and_fused
def test_the_causal_mask_is_made_where_the_queries_are(attend):
    inputs = sequences()
    with torch.device("meta"):
        elsewhere = attend(*inputs, causal=True)
    torch.testing.assert_close(elsewhere, attend(*inputs, causal=True))


@open_and_fused
def test_dropout_keeps_the_expected_output(attend):
    # One query, equal weights, unit values: the output counts the weights kept.
    q, k, v = torch.zeros(4000, 1, 1), torch.zeros(4000, 9, 1), torch.ones(4000, 9, 1)
    mask = (torch.arange(9) < 8)[None]
    for options in ({"mask": mask}, {}):
        if not options:
            k, v = k[:, :8], v[:, :8]
        output, weights = attend(q, k, v, **options, dropout_p=0.25)
        kept = output * 8 * 0.75
        torch.testing.assert_close(kept, kept.round())
        assert kept.unique().numel() > 5
        # Standard error of the mean: sqrt(1/3 / 8 / 4000) = 0.0032.
        assert abs(output.mean().item() - 1.0) < 0.016
        if weights is not None:  # those before dropout
            assert weights[..., :8].eq(1 / 8).all()


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("q and k must be equally wide: q is (2, 3, 5", {"k": torch.ones(2, 3, 7, 4)}),
        ("k and v must be equally long: k is (2, 3", {"v": torch.ones(2, 3, 6, 11)}),
        *(
            ("q, k and v must agree in every axis ", change)
            for change in (
                {"v": torch.ones(2, 1, 7, 11)},
                *(
                    dict.fromkeys("kv", torch.ones(b, h, 7, 11))
                    for b, h in ((2, 2), (1, 3), (2, 0))
                ),
            )
        ),
        ("v must be a tensor; it is a ndarray", {"v": numpy.ones(3)}),
        ("q, k and v must have one dtype: q is", {"k": torch.ones(2, 3, 7, 11).half()}),
        ("q, k and v must be on one", {"v": torch.ones(2, 3, 7, 11, device="meta")}),
        (
            "mask must be boolean (True = may attend); it is float32. For a mask "
            "that is added to the scores, write mask=from_additive(mask); for "
            "numbers that shift them, score_bias=mask",
            {"mask": torch.zeros(5, 7)},
        ),
        (
            "mask must be boolean (True = may attend); it is int32. For a "
            "tokenizer's ones and zeros, (B, S), write mask=token_mask(mask); for "
            "ones and zeros of another shape, mask=mask.bool()",
            {"mask": torch.ones(2, 7, dtype=torch.int)},
        ),
        (
            "mask must be a boolean tensor (True = may attend); it is a list: "
            "write mask=torch.as_tensor(mask)",
            {"mask": [[True] * 7] * 5},
        ),
        (
            "mask is on meta but must be where q is, on cpu",
            {"mask": torch.ones(5, 7, dtype=torch.bool, device="meta")},
        ),
        *(
            (
                f"mask is {shape} but must be (T, S) or (B, H, T, S), each axis "
                f"full or 1; the scores are (2, 3, 5, 7){advice}",
                {"mask": torch.ones(shape, dtype=torch.bool)},
            )
            for shape, advice in {
                (7, 5): "",
                (7,): "",
                (1, 2, 3, 5, 7): "",
                # Hugging Face's attention_mask, Keras' padding_mask.
                (2, 7): ". For a mask of tokens, (B, S), write mask=token_mask(mask)",
                # Torchtune's.
                (2, 5, 7): ". For one for each sequence, (B, T, S), "
                "write mask=mask[:, None]",
                (3, 5, 7): ". For one for each head, (H, T, S), write mask=mask[None]",
                # PyTorch's attn_mask.
                (6, 5, 7): ". For one for each head of each sequence, "
                "write mask=mask.unflatten(0, (2, 3))",
            }.items()
        ),
        ("score_bias is (2, 5, 7) but", {"score_bias": torch.ones(2, 5, 7)}),
        ("score_bias must be floating-point", {"score_bias": torch.ones(5, 7).bool()}),
        ("dropout_p=1.5 must lie between 0 and 1", {"dropout_p": 1.5}),
        ("window=0 must be positive", {"window": 0}),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_bad_arguments_are_named(change: dict, message: str):
    q, k, v = (x.detach() for x in sequences())
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        attention_with_weights(**{"q": q, "k": k, "v": v} | change)


@pytest.mark.usefixtures("as_a_caller")
def test_weights_and_the_fused_form_check_their_arguments_too():
    with pytest.raises(TypeError, match="must be boolean"):
        attention_weights(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"dropout_p=-0\.5 must lie between"):
        fused_attention(*sequences(), dropout_p=-0.5)


def test_advice_on_masks_is_right():
    """What an error tells to write works, and means what was meant."""
    q, k, v = (x.detach() for x in sequences())
    real = torch.tensor([[1, 1, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    expected, _ = attention_with_weights(q, k, v, mask=real.bool()[:, None, None])
    added = torch.zeros(B, 1, 1, S).masked_fill(real[:, None, None] == 0, -torch.inf)
    for mask in (token_mask(real), from_additive(added)):
        torch.testing.assert_close(fused_attention(q, k, v, mask=mask), expected)
