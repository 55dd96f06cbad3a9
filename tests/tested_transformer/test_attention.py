"""The open attention is held against arithmetic, and against PyTorch's own."""

import math
import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
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


def sequences(
    *, t: int = T, s: int = S, d_v: int = D_K, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Make q, k and v that ask for gradients."""
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


MASKS = {
    "none": lambda t, s: None,
    "causal": causal_mask,
    "all padding": lambda t, s: padding_mask(torch.tensor([s, 0]), s),
    "some keys": some_keys,
    "one row for all": lambda t, s: torch.arange(s)[None] % 2 == 0,
}


def output_and_gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Pull the same direction back through the output each time."""
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(output.shape, generator=generator).to(output.dtype)
    return [output, *torch.autograd.grad(output, inputs, direction)]


def worked_out(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attend with numbers, one at a time: the arithmetic of equation 1."""
    rows = []
    for query, may in zip(q.tolist(), allowed.tolist(), strict=True):
        exps = [
            math.exp(
                sum(a * b for a, b in zip(query, key, strict=True)) / len(query) ** 0.5
            )
            if ok
            else 0.0
            for key, ok in zip(k.tolist(), may, strict=True)
        ]
        total = sum(exps) or 1.0
        rows.append(
            [
                sum(
                    e / total * value[i]
                    for e, value in zip(exps, v.tolist(), strict=True)
                )
                for i in range(v.shape[-1])
            ]
        )
    return torch.tensor(rows, dtype=q.dtype)


def test_three_tokens_on_paper():
    # sqrt(4) = 2, so the scores are (ln 1, ln 2, ln 5): weights 1/8, 2/8, 5/8.
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[0.0] * 4, [math.log(2)] + [0.0] * 3, [math.log(5)] + [0.0] * 3])
    v = torch.tensor([[8.0, 0.0], [0.0, 8.0], [16.0, -8.0]])
    output, weights = attention_with_weights(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.125, 0.25, 0.625]]))
    torch.testing.assert_close(output, torch.tensor([[11.0, -3.0]]))


@pytest.mark.parametrize("mask_name", MASKS)
def test_the_open_attention_does_the_arithmetic(mask_name: str):
    q, k, v = (x.detach() for x in sequences(d_v=D_V, dtype=torch.float64))
    mask = MASKS[mask_name](T, S)
    output, _ = attention_with_weights(q, k, v, mask=mask)
    allowed = torch.ones(B, H, T, S, dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    for b in range(B):
        for h in range(H):
            expected = worked_out(q[b, h], k[b, h], v[b, h], allowed[b, h])
            torch.testing.assert_close(output[b, h], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask_name", MASKS)
def test_the_open_attention_is_pytorchs(mask_name: str):
    inputs = sequences(d_v=D_V)
    mask = MASKS[mask_name](T, S)
    ours = attention_with_weights(*inputs, mask=mask)[0]
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    torch.testing.assert_close(
        output_and_gradients(ours, inputs), output_and_gradients(theirs, inputs)
    )


@pytest.mark.parametrize(("t", "s"), [(T, S), (S, T), (S, S), (1, S)])
@pytest.mark.parametrize("window", [None, 1, 3, S + 3])
def test_causal_and_window_are_short_for_their_masks(
    window: int | None, t: int, s: int
):
    inputs = sequences(t=t, s=s)
    past = causal_mask(t, s)
    if window is not None:
        past = sliding_window_mask(t, s, window=window)
    for causal in (True, False) if window else (True,):
        for mask in (None, some_keys(t, s)):
            short = attention_with_weights(
                *inputs, mask=mask, causal=causal, window=window
            )
            both = past if mask is None else past & mask
            expected = attention_with_weights(*inputs, mask=both)
            torch.testing.assert_close(short, expected)


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
@pytest.mark.parametrize("options", [{"causal": True}, {"window": 3}], ids=str)
def test_any_number_of_axes_may_stand_in_front(attend, options: dict):
    q, k, v = (x.detach() for x in sequences())
    expected = attend(q, k, v, **options)
    expected = expected[0] if isinstance(expected, tuple) else expected
    for index in ((0,), (0, 1), (slice(None), slice(None), None)):
        output = attend(q[index], k[index], v[index], **options)
        output = output[0] if isinstance(output, tuple) else output
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


def test_gradients_are_those_of_finite_differences():
    inputs = sequences(t=2, s=3, dtype=torch.float64)
    mask = some_keys(2, 3)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return attention_with_weights(q, k, v, mask=mask)

    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_with_nothing_to_attend_to_gives_zeros(dtype: torch.dtype):
    inputs = sequences(dtype=dtype)
    # Not even on the way back is there a NaN: anomaly mode would stop at it.
    with torch.autograd.set_detect_anomaly(True):
        output, weights = attention_with_weights(*inputs, mask=some_keys(T, S))
        gradients = torch.autograd.grad(output.sum() + weights.sum(), inputs)
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
    torch.testing.assert_close(attention_scores(q, k, scale=1.0), q @ k.mT)
    scores = q @ k.mT / D_K**0.5 + bias.float()
    torch.testing.assert_close(attention_scores(q, k, score_bias=bias), scores)
    for scale, factor in ((None, D_K**-0.5), (-0.7, -0.7), (0.0, 0.0)):
        weights = (q @ k.mT * factor + bias.float()).softmax(-1)
        found = attention_with_weights(q, k, v, scale=scale, score_bias=bias)
        torch.testing.assert_close(found, (weights @ v, weights))


def test_weights_are_returned_before_dropout():
    q, k, v = sequences()
    dropped, weights = attention_with_weights(q, k, v, dropout_p=0.5)
    kept, expected = attention_with_weights(q, k, v)
    torch.testing.assert_close(weights, expected)
    assert not torch.allclose(dropped, kept)


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_the_causal_mask_is_made_where_the_queries_are(attend):
    inputs = sequences()
    with torch.device("meta"):
        elsewhere = attend(*inputs, causal=True)
    torch.testing.assert_close(elsewhere, attend(*inputs, causal=True))


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
@pytest.mark.parametrize("masked", [False, True])
def test_dropout_keeps_the_expected_output(attend, masked: bool):
    # One query, equal weights, unit values: the output counts the weights kept.
    q, k, v = torch.zeros(4000, 1, 1), torch.zeros(4000, 9, 1), torch.ones(4000, 9, 1)
    mask = (torch.arange(9) < 8)[None]
    if not masked:
        k, v, mask = k[:, :8], v[:, :8], None
    output = attend(q, k, v, mask=mask, dropout_p=0.25)
    output = output[0] if isinstance(output, tuple) else output
    kept = output * 8 * 0.75
    torch.testing.assert_close(kept, kept.round())
    assert kept.unique().numel() > 5
    # Standard error of the mean: sqrt(1/3 / 8 / 4000) = 0.0032.
    assert abs(output.mean().item() - 1.0) < 0.016


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_all_may_be_dropped(attend):
    output = attend(*sequences(), dropout_p=1.0)
    output = output[0] if isinstance(output, tuple) else output
    assert output.eq(0).all()


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"k": torch.ones(2, 3, 7, 4)},
            ValueError,
            r"q and k must be equally wide: q is \(2, 3, 5, 11\), k is \(2, 3, 7, 4\)",
        ),
        (
            {"v": torch.ones(2, 3, 6, 11)},
            ValueError,
            r"k and v must be equally long: k is \(2, 3, 7, 11\), "
            r"v is \(2, 3, 6, 11\)",
        ),
        *(
            (change, ValueError, "q, k and v must agree in every axis .*")
            for change in (
                {"q": torch.ones(2, 1, 5, 11)},
                {"v": torch.ones(2, 1, 7, 11)},
                {"k": torch.ones(2, 2, 7, 11), "v": torch.ones(2, 2, 7, 11)},
                {"k": torch.ones(1, 3, 7, 11), "v": torch.ones(1, 3, 7, 11)},
                {"k": torch.ones(2, 0, 7, 11), "v": torch.ones(2, 0, 7, 11)},
            )
        ),
        ({"v": numpy.ones(3)}, TypeError, "v must be a tensor; it is a ndarray"),
        (
            {"k": torch.ones(2, 3, 7, 11).half()},
            TypeError,
            "q, k and v must have one dtype: q is float32, k is float16, v is float32",
        ),
        (
            {"v": torch.ones(2, 3, 7, 11, device="meta")},
            ValueError,
            "q, k and v must be on one device: q is on cpu, k on cpu, v on meta",
        ),
        (
            {"mask": torch.zeros(5, 7)},
            TypeError,
            r"mask must be boolean \(True = may attend\); it is float32. For a mask "
            r"that is added to the scores, write mask=from_additive\(mask\); for "
            r"numbers that shift them, score_bias=mask",
        ),
        (
            {"mask": torch.ones(2, 7, dtype=torch.int)},
            TypeError,
            r"mask must be boolean \(True = may attend\); it is int32. For a "
            r"tokenizer's ones and zeros, \(B, S\), write mask=token_mask\(mask\); for "
            r"ones and zeros of another shape, mask=mask.bool\(\)",
        ),
        (
            {"mask": [[True] * 7] * 5},
            TypeError,
            r"mask must be a boolean tensor \(True = may attend\); it is a list: "
            r"write mask=torch.as_tensor\(mask\)",
        ),
        (
            {"mask": torch.ones(5, 7, dtype=torch.bool, device="meta")},
            ValueError,
            "mask is on meta but must be where q is, on cpu",
        ),
        *(
            (
                {"mask": torch.ones(shape, dtype=torch.bool)},
                ValueError,
                re.escape(
                    f"mask is {shape} but must be (T, S) or (B, H, T, S), each axis "
                    f"full or 1; the scores are (2, 3, 5, 7){advice}"
                ),
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
        (
            {"score_bias": torch.ones(2, 5, 7)},
            ValueError,
            r"score_bias is \(2, 5, 7\) but must be .*"
            r"write score_bias=score_bias\[:, None\]",
        ),
        (
            {"score_bias": torch.ones(5, 7).bool()},
            TypeError,
            "score_bias must be floating-point; its dtype is torch.bool",
        ),
        ({"dropout_p": 1.5}, ValueError, "dropout_p=1.5 must lie between 0 and 1"),
        ({"window": 0}, ValueError, "window=0 must be positive"),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_bad_arguments_are_named(attend, change, error, message: str):
    q, k, v = (x.detach() for x in sequences())
    arguments = {"q": q, "k": k, "v": v} | change
    with pytest.raises(error, match=f"^{message}$"):
        attend(**arguments)


@pytest.mark.usefixtures("as_a_caller")
def test_weights_check_their_mask_too():
    with pytest.raises(TypeError, match="must be boolean"):
        attention_weights(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"mask is \(3, 2\)"):
        attention_weights(torch.ones(2, 3), torch.ones(3, 2, dtype=torch.bool))


def test_advice_on_masks_is_right():
    # What an error tells to write works, and means what was meant.
    q, k, v = (x.detach() for x in sequences())
    real = torch.tensor([[1, 1, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    expected, _ = attention_with_weights(q, k, v, mask=real.bool()[:, None, None])
    added = torch.zeros(B, 1, 1, S).masked_fill(real[:, None, None] == 0, -torch.inf)
    for mask in (token_mask(real), from_additive(added)):
        torch.testing.assert_close(fused_attention(q, k, v, mask=mask), expected)
    both = torch.rand(B, H, T, S) < 0.5
    expected, _ = attention_with_weights(q, k, v, mask=both)
    flat = both.flatten(0, 1).unflatten(0, (B, H))
    torch.testing.assert_close(fused_attention(q, k, v, mask=flat), expected)
