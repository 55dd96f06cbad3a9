"""The open attention is held against arithmetic, and every other path against it."""

import math
import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tested_transformer.attention import (
    attention_scores,
    attention_weights,
    attention_with_weights,
    fused_attention,
)
from tested_transformer.masks import (
    causal_mask,
    from_additive,
    padding_mask,
    sliding_window_mask,
    token_mask,
)
from tested_transformer.positions import alibi_bias

# Pairwise different, so that no two axes can be taken for each other.
B, H, T, S, D_K, D_V = 2, 3, 5, 7, 11, 13

# How far two orders of summation may drift apart, by dtype.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}


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
    "padding": lambda t, s: padding_mask(torch.tensor([s, max(s - 2, 0)])),
    "all padding": lambda t, s: padding_mask(torch.tensor([s, 0]), s),
    "causal and padding": lambda t, s: (
        causal_mask(t, s) & padding_mask(torch.tensor([s, max(s - 2, 0)]))
    ),
    "some keys": some_keys,
    "one row for all": lambda t, s: torch.arange(s)[None] % 2 == 0,
}


def assert_same(
    one: list[Tensor], other: list[Tensor], dtype: torch.dtype = torch.float32
) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


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


def fused_without_a_kernel(*inputs: Tensor, **options) -> Tensor:
    """Let PyTorch fall back to products and softmax, which is stricter about masks."""
    with sdpa_kernel(SDPBackend.MATH):
        return fused_attention(*inputs, **options)


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
            assert_same([output[b, h]], [expected], torch.float64)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("t", "s"), [(T, S), (S, T), (S, S), (1, S), (T, 1)])
@pytest.mark.parametrize("mask_name", MASKS)
def test_fused_is_the_open_attention(
    mask_name: str, t: int, s: int, dtype: torch.dtype
):
    inputs = sequences(t=t, s=s, dtype=dtype)
    mask = MASKS[mask_name](t, s)
    opened = attention_with_weights(*inputs, mask=mask)[0]
    fused = fused_attention(*inputs, mask=mask)
    assert_same(
        output_and_gradients(fused, inputs),
        output_and_gradients(opened, inputs),
        dtype,
    )


@pytest.mark.parametrize("mask_name", MASKS)
def test_the_open_attention_is_pytorchs(mask_name: str):
    inputs = sequences(d_v=D_V)
    mask = MASKS[mask_name](T, S)
    ours = attention_with_weights(*inputs, mask=mask)[0]
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    assert_same(
        output_and_gradients(ours, inputs), output_and_gradients(theirs, inputs)
    )


@pytest.mark.parametrize(("t", "s"), [(T, S), (S, T), (S, S), (1, S)])
@pytest.mark.parametrize("mask_name", ["none", "padding", "some keys"])
@pytest.mark.parametrize(
    "attend",
    [attention_with_weights, fused_attention, fused_without_a_kernel],
)
def test_causal_is_short_for_the_causal_mask(attend, mask_name: str, t: int, s: int):
    inputs = sequences(t=t, s=s)
    mask = MASKS[mask_name](t, s)
    short = attend(*inputs, mask=mask, causal=True)
    both = causal_mask(t, s) if mask is None else causal_mask(t, s) & mask
    long = attention_with_weights(*inputs, mask=both)[0]
    short = short[0] if isinstance(short, tuple) else short
    assert_same(output_and_gradients(short, inputs), output_and_gradients(long, inputs))


@pytest.mark.parametrize("scale", [None, 2.0, 0.0, -1.0])
@pytest.mark.parametrize("causal", [False, True])
def test_no_scale_turns_the_mask_around(causal: bool, scale: float | None):
    inputs = sequences(t=S, s=S)
    opened = attention_with_weights(*inputs, causal=causal, scale=scale)[0]
    fused = fused_attention(*inputs, causal=causal, scale=scale)
    assert_same(
        output_and_gradients(fused, inputs), output_and_gradients(opened, inputs)
    )


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_the_causal_mask_is_made_where_the_queries_are(attend):
    inputs = sequences()
    with torch.device("meta"):
        elsewhere = attend(*inputs, causal=True)
    here = attend(*inputs, causal=True)
    if isinstance(here, tuple):
        here, elsewhere = here[0], elsewhere[0]
    assert_same([elsewhere], [here])


def test_gradients_are_those_of_finite_differences():
    inputs = sequences(t=2, s=3, dtype=torch.float64)
    mask = some_keys(2, 3)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return attention_with_weights(q, k, v, mask=mask)

    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)


@pytest.mark.parametrize(
    "attend",
    [attention_with_weights, fused_attention, fused_without_a_kernel],
)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_query_with_nothing_to_attend_to_gives_zeros(attend, dtype: torch.dtype):
    inputs = sequences(dtype=dtype)
    mask = some_keys(T, S)
    # Not even on the way back is there a NaN: anomaly mode would stop at it.
    with torch.autograd.set_detect_anomaly(True):
        output = attend(*inputs, mask=mask)
        output = output[0] if isinstance(output, tuple) else output
        gradients = torch.autograd.grad(output.sum(), inputs)
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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_no_score_is_large_enough_to_beat_a_mask(dtype: torch.dtype):
    limits = torch.finfo(dtype)
    scores = torch.tensor([[limits.min, limits.max]], dtype=dtype)
    weights = attention_weights(scores, torch.tensor([[True, False]]))
    assert weights.tolist() == [[1.0, 0.0]]


def test_half_precision_scores_do_not_overflow_on_the_way():
    q = torch.full((1, 4096), 8.0, dtype=torch.float16)
    # The bare dot product, 262144, is beyond float16; divided by 64 it is 4096.
    assert attention_scores(q, q).item() == 4096.0


def test_scale_multiplies_the_dot_products():
    q, k, v = sequences()
    torch.testing.assert_close(attention_scores(q, k, scale=1.0), q @ k.mT)
    torch.testing.assert_close(attention_scores(q, k), q @ k.mT / D_K**0.5)
    for attend in (attention_with_weights, fused_attention):
        uniform = attend(q, k, v, scale=0.0)
        uniform = uniform[0] if isinstance(uniform, tuple) else uniform
        mean = v.mean(dim=-2, keepdim=True).expand_as(uniform)
        torch.testing.assert_close(uniform, mean)


def test_weights_are_returned_before_dropout():
    q, k, v = sequences()
    dropped, weights = attention_with_weights(q, k, v, dropout_p=0.5)
    kept, expected = attention_with_weights(q, k, v)
    torch.testing.assert_close(weights, expected)
    assert not torch.allclose(dropped, kept)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
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
        (
            {"v": torch.ones(2, 3, 8, 11)},
            ValueError,
            r"k and v must be equally long: k is \(2, 3, 7, 11\), "
            r"v is \(2, 3, 8, 11\)",
        ),
        (
            {"v": torch.ones(2, 1, 7, 11)},
            ValueError,
            r"q, k and v must agree in every axis but the last two \(keys and values "
            r"may have fewer heads, which divide those of q\): "
            r"q is \(2, 3, 5, 11\), k is \(2, 3, 7, 11\), v is \(2, 1, 7, 11\)",
        ),
        (
            {"q": torch.ones(2, 1, 5, 11)},
            ValueError,
            r"q, k and v must agree in every axis but the last two \(keys and values "
            r"may have fewer heads, which divide those of q\): "
            r"q is \(2, 1, 5, 11\), k is \(2, 3, 7, 11\), v is \(2, 3, 7, 11\)",
        ),
        ({"v": torch.ones(2, 3, 5, 7)[0]}, ValueError, "k and v must be equally .*"),
        (
            {"k": torch.ones(2, 2, 7, 11), "v": torch.ones(2, 2, 7, 11)},
            ValueError,
            r"q, k and v must agree in .* k is \(2, 2, 7, 11\), v is \(2, 2, 7, 11\)",
        ),
        (
            {"k": torch.ones(1, 3, 7, 11), "v": torch.ones(1, 3, 7, 11)},
            ValueError,
            r"q, k and v must agree in .* k is \(1, 3, 7, 11\), v is \(1, 3, 7, 11\)",
        ),
        (
            {"k": torch.ones(2, 0, 7, 11), "v": torch.ones(2, 0, 7, 11)},
            ValueError,
            r"q, k and v must agree in .* k is \(2, 0, 7, 11\), v is \(2, 0, 7, 11\)",
        ),
        ({"q": [1.0]}, TypeError, "q must be a tensor; it is a list"),
        ({"v": numpy.ones(3)}, TypeError, "v must be a tensor; it is a ndarray"),
        (
            {"k": torch.ones(2, 3, 7, 11).half()},
            TypeError,
            "q, k and v must have one dtype: q is float32, k is float16, v is float32",
        ),
        (
            {"v": torch.ones(2, 3, 7, 11).double()},
            TypeError,
            "q, k and v must have one dtype: q is float32, k is float32, v is float64",
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
        (
            {"score_bias": torch.ones(5, 7, device="meta")},
            ValueError,
            "score_bias is on meta but must be where q is, on cpu",
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
                (4, 5, 7): "",
                (2, 5, 6): "",
                # Hugging Face's attention_mask, Keras' padding_mask.
                (2, 7): ". For a mask of tokens, (B, S), write mask=token_mask(mask)",
                # Torchtune's.
                (2, 5, 7): ". For one for each sequence, (B, T, S), "
                "write mask=mask[:, None]",
                (2, 1, 7): ". For one for each sequence, (B, T, S), "
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
        ({"score_bias": torch.ones(2, 7)}, ValueError, r"score_bias is .* 5, 7\)"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p=1.5 must lie between 0 and 1"),
        ({"dropout_p": -0.1}, ValueError, "dropout_p=-0.1 must lie between 0 and 1"),
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


@pytest.mark.parametrize("num_keys", [1, 7, 0])
def test_a_single_causal_query_sees_every_key(num_keys: int):
    q, k, v = (
        torch.randn(2, 1, 4),
        torch.randn(2, num_keys, 4),
        torch.randn(2, num_keys, 5),
    )
    fused = fused_attention(q, k, v, causal=True)
    torch.testing.assert_close(fused, attention_with_weights(q, k, v, causal=True)[0])
    torch.testing.assert_close(fused, attention_with_weights(q, k, v)[0])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_bias_is_added_to_the_scores_on_both_paths(causal: bool, masked: bool):
    q = torch.randn(2, 3, 5, 4, requires_grad=True)
    k, v = torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 6)
    score_bias = torch.randn(1, 3, 5, 7, requires_grad=True)
    mask = torch.rand(2, 1, 1, 7) < 0.5 if masked else None
    call = {"mask": mask, "causal": causal, "score_bias": score_bias}
    scores = q @ k.transpose(-2, -1) / 2 + score_bias
    if causal:
        scores = scores.masked_fill(~causal_mask(5, 7), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    # Rows with nothing to attend to are another test's.
    full = scores.gt(-torch.inf).any(-1, keepdim=True)
    expected = torch.where(full, scores.masked_fill(~full, 0).softmax(-1), 0) @ v
    direction = torch.randn_like(expected)
    opened, _ = attention_with_weights(q, k, v, **call)
    for output in (opened, fused_attention(q, k, v, **call)):
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
        for one, other in zip(
            torch.autograd.grad(output, [q, score_bias], direction, retain_graph=True),
            torch.autograd.grad(
                expected, [q, score_bias], direction, retain_graph=True
            ),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", [attention_with_weights, fused_attention])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.bfloat16])
def test_a_bias_of_another_type_takes_the_type_of_the_queries(
    other: torch.dtype, dtype: torch.dtype, autocast: bool, causal: bool, path
):
    q, k, v = torch.randn(3, 2, 3, 5, 4).to(dtype)
    score_bias = torch.randn(3, 5, 5)[None].to(other).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, expected = (
            path(q, k, v, causal=causal, score_bias=each)
            for each in (score_bias, score_bias.to(dtype))
        )
    if path is attention_with_weights:
        torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
        found, expected = found[0], expected[0]
    # Under autocast the kernel runs in float32: the bias is not rounded either.
    gap = 0.02 if autocast else 0
    torch.testing.assert_close(found, expected, rtol=gap, atol=gap)
    assert found.dtype == (torch.bfloat16 if autocast else dtype)
    (slope,) = torch.autograd.grad(found.sum(), score_bias)
    assert slope.dtype == other


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize("path", [attention_with_weights, fused_attention])
def test_a_bias_that_does_not_fit_is_named(path):
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 6)
    message = r"^score_bias is \(3, 5, 7\) but must be \(T, S\) or \(B, H, T, S\)"
    with pytest.raises(ValueError, match=message):
        path(q, k, v, score_bias=torch.zeros(3, 5, 7))
    with pytest.raises(
        TypeError, match=r"^score_bias must be floating-point; its dtype is torch.bool$"
    ):
        path(q, k, v, score_bias=torch.ones(5, 7).bool())


@pytest.mark.parametrize(
    ("case", "biased"),
    [
        ("mask", False),
        ("mask", True),
        ("more queries than keys", False),
        ("more queries than keys", True),
        ("bias", True),
        ("causal bias", True),
    ],
)
def test_no_kernel_is_handed_a_row_with_nothing_to_attend_to(
    case: str, biased: bool, monkeypatch: pytest.MonkeyPatch
):
    # Zeros on every device must not depend on what its kernel makes of such a row.
    handed: list[Tensor] = []
    kernel = F.scaled_dot_product_attention

    def watched(*inputs: Tensor, attn_mask: Tensor, **options):
        handed.append(attn_mask)
        return kernel(*inputs, attn_mask=attn_mask, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    t, s = (5, 2) if case == "more queries than keys" else (2, 5)
    q, k, v = torch.randn(B, H, t, 4), torch.randn(B, H, s, 4), torch.randn(B, H, s, 4)
    call = {"score_bias": torch.randn(t, s) if biased else None}
    if case == "mask":
        call["mask"] = padding_mask(torch.tensor([s, 0]))
    elif case in ("bias", "causal bias"):
        call["score_bias"][1] = -torch.inf
    if case in ("more queries than keys", "causal bias"):
        call["causal"] = True
    output = fused_attention(q, k, v, **call)
    (mask,) = handed
    allowed = mask if mask.dtype == torch.bool else mask > -torch.inf
    assert allowed.any(dim=-1).all()
    torch.testing.assert_close(output, attention_with_weights(q, k, v, **call)[0])


@pytest.mark.parametrize("axes", [(), (B,), (B, H), (B, H, 1)])
@pytest.mark.parametrize(
    ("t", "s", "options", "asked"),
    [
        (T, T, {"causal": True}, "causal"),
        (T, T, {"causal": True, "scale": 0.3}, "causal"),
        (1, S, {"causal": True}, "nothing"),
        (1, S, {"causal": True, "mask": True}, "mask"),
        (T, S, {}, "nothing"),
        (T, S, {"causal": True}, "mask"),
        (T, T, {"causal": True, "scale": -0.3}, "mask"),
        (T, T, {"causal": True, "mask": True}, "mask"),
        (T, T, {"causal": True, "score_bias": True}, "mask"),
        (T, S, {"score_bias": True}, "mask"),
    ],
)
def test_no_mask_is_made_that_a_kernel_can_do_without(
    axes: tuple[int, ...],
    t: int,
    s: int,
    options: dict,
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
):
    # However many axes stand in front, and whatever their sizes are.
    q, k, v = (torch.randn(*axes, length, D_K) for length in (t, s, s))
    if "mask" in options:
        options = options | {"mask": (torch.rand(t, s) < 0.5) | torch.eye(t, s).bool()}
    if "score_bias" in options:
        options = options | {"score_bias": torch.randn(t, s)}
    seen: list[tuple[bool, bool]] = []
    kernel = F.scaled_dot_product_attention

    def spy(*inputs: Tensor, **given) -> Tensor:
        causal = given.get("is_causal", False)
        seen.append((causal, given["attn_mask"] is not None))
        return kernel(*inputs, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    output = fused_attention(q, k, v, **options)
    assert seen == [(asked == "causal", asked == "mask")]
    open_output, _ = attention_with_weights(q, k, v, **options)
    torch.testing.assert_close(output, open_output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [1, 2, 4, S, S + 3])
@pytest.mark.parametrize(("t", "s"), [(T, S), (S, T), (S, S), (1, S), (2, S)])
@pytest.mark.parametrize("mask_name", ["none", "padding", "some keys"])
@pytest.mark.parametrize("biased", ["no bias", "a row", "all scores"])
def test_a_window_is_short_for_the_window_mask(
    biased: str, mask_name: str, t: int, s: int, window: int
):
    inputs = sequences(t=t, s=s)
    mask = MASKS[mask_name](t, s)
    shapes = {"no bias": None, "a row": (t, 1), "all scores": (1, H, t, s)}
    shape = shapes[biased]
    options = {"score_bias": None if shape is None else torch.randn(shape)}
    both = sliding_window_mask(t, s, window=window)
    both = both if mask is None else both & mask
    long = attention_with_weights(*inputs, mask=both, **options)[0]
    expected = output_and_gradients(long, inputs)
    for attend in (attention_with_weights, fused_attention):
        for causal in (False, True):
            short = attend(*inputs, mask=mask, causal=causal, window=window, **options)
            short = short[0] if isinstance(short, tuple) else short
            assert_same(output_and_gradients(short, inputs), expected)


def test_a_window_reads_only_the_keys_in_reach(monkeypatch: pytest.MonkeyPatch):
    # Two queries with a window of three reach four keys of seven.
    read: list[int] = []
    kernel = F.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, **given) -> Tensor:
        read.append(k.shape[-2])
        return kernel(q, k, v, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = (torch.randn(B, H, length, D_K) for length in (2, S, S))
    output = fused_attention(q, k, v, window=3)
    assert read == [4]
    assert_same([output], [attention_with_weights(q, k, v, window=3)[0]])


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
@pytest.mark.parametrize("window", [0, -2])
def test_a_window_must_be_positive(attend, window: int):
    with pytest.raises(ValueError, match=f"^window={window} must be positive$"):
        attend(*sequences(), window=window)


def test_advice_on_masks_is_right():
    # What an error tells to write works, and means what was meant.
    q, k, v = (x.detach() for x in sequences())
    real = torch.tensor([[1, 1, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    expected = attention_with_weights(q, k, v, mask=real.bool()[:, None, None])[0]
    assert_same([fused_attention(q, k, v, mask=token_mask(real))], [expected])
    added = torch.zeros(B, 1, 1, S).masked_fill(real[:, None, None] == 0, -torch.inf)
    assert_same([fused_attention(q, k, v, mask=from_additive(added))], [expected])
    both = torch.rand(B, H, T, S) < 0.5
    expected = attention_with_weights(q, k, v, mask=both)[0]
    flat = both.flatten(0, 1).unflatten(0, (B, H))
    assert_same([fused_attention(q, k, v, mask=flat)], [expected])


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_under_autocast_types_may_differ(attend):
    q, k, v = (x.detach() for x in sequences())
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(q, k, v.bfloat16())
    output = output[0] if isinstance(output, tuple) else output
    expected = attention_with_weights(q, k, v)[0]
    assert_same([output.float()], [expected], torch.bfloat16)


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_all_may_be_dropped(attend):
    q, k, v = sequences()
    output = attend(q, k, v, dropout_p=1.0)
    output = output[0] if isinstance(output, tuple) else output
    assert output.eq(0).all()


def grouped(num_kv_heads: int, t: int, s: int, heads: int = 6) -> list[Tensor]:
    """Make queries of six heads, and keys and values of fewer."""
    return [
        torch.randn(B, h, length, D_K, requires_grad=True)
        for h, length in ((heads, t), (num_kv_heads, s), (num_kv_heads, s))
    ]


GROUPED_MASKS = {
    "none": lambda t, s: None,
    "padding": lambda t, s: padding_mask(torch.tensor([s, max(s - 2, 0)])),
    "a row": lambda t, s: torch.arange(s)[None] % 2 == 0,
    "pairs": lambda t, s: some_keys(t, s)[:1, :1],
    "heads": lambda t, s: torch.rand(1, 6, t, s) < 0.6,
    "all": lambda t, s: torch.rand(B, 6, 1, s) < 0.6,
}


@pytest.mark.parametrize(("t", "s"), [(1, S), (T, S), (S, S), (S, T)])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3])
@pytest.mark.parametrize("mask_name", GROUPED_MASKS)
@pytest.mark.parametrize("biased", [False, True])
def test_heads_that_share_keys_see_copies_of_them(
    biased: bool, mask_name: str, num_kv_heads: int, t: int, s: int
):
    inputs = grouped(num_kv_heads, t, s)
    options = {
        "mask": GROUPED_MASKS[mask_name](t, s),
        "causal": num_kv_heads != 1,
        "score_bias": torch.randn(1, 6, 1, s) if biased else None,
    }
    q, k, v = inputs
    copies = [
        torch.stack([x[:, h * num_kv_heads // 6] for h in range(6)], 1) for x in (k, v)
    ]
    expected, expected_weights = attention_with_weights(q, *copies, **options)
    expected = output_and_gradients(expected, inputs)
    opened, weights = attention_with_weights(*inputs, **options)
    assert_same([weights], [expected_weights])
    assert_same(output_and_gradients(opened, inputs), expected)
    fused = fused_attention(*inputs, **options)
    assert_same(output_and_gradients(fused, inputs), expected)


def test_one_query_reads_shared_keys_once(monkeypatch: pytest.MonkeyPatch):
    read: list[tuple] = []
    kernel = F.scaled_dot_product_attention

    def spy(q: Tensor, k: Tensor, v: Tensor, **given) -> Tensor:
        read.append((q.shape, k.data_ptr(), v.data_ptr()))
        return kernel(q, k, v, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = grouped(2, 1, S)
    fused_attention(q, k, v, mask=torch.ones(1, 6, 1, S).bool(), causal=True)
    assert read == [((B, 2, 3, D_K), k.data_ptr(), v.data_ptr())]


@pytest.mark.parametrize(
    ("dtype", "size", "negligible"),
    [
        (torch.float32, 1.0, True),
        (torch.float32, 3.0, True),
        (torch.float64, 1.0, True),
        (torch.float64, 60.0, False),  # the scores outdo any bias
    ],
    ids=str,
)
def test_keys_that_weigh_nothing_are_left_out_and_others_never(
    dtype: torch.dtype, size: float, negligible: bool, monkeypatch: pytest.MonkeyPatch
):
    handed: list[Tensor] = []
    kernel = F.scaled_dot_product_attention

    def spy(*inputs: Tensor, attn_mask: Tensor, **given) -> Tensor:
        handed.append(attn_mask)
        return kernel(*inputs, attn_mask=attn_mask, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    t = 150
    inputs = [
        (factor * x).detach().requires_grad_()
        for factor, x in zip(
            (size, 1.0, 1.0), sequences(t=t, s=t, dtype=dtype), strict=True
        )
    ]
    slopes = torch.tensor([1.0, 0.01, 4.0], dtype=dtype)
    options = {"causal": True, "score_bias": alibi_bias(slopes, t)}
    output = fused_attention(*inputs, **options)
    opened, weights = attention_with_weights(*inputs, **options)
    assert_same(
        output_and_gradients(output, inputs),
        output_and_gradients(opened, inputs),
        dtype,
    )
    left_out = handed[0].isneginf() & causal_mask(t)
    assert weights[left_out.expand_as(weights)].le(torch.finfo(dtype).eps ** 2).all()
    assert left_out[0].any(-1).any(-1).tolist() == [negligible, False, negligible]


LONG = 150  # long enough for a search for negligible keys to pay


def test_a_far_key_that_is_alone_keeps_its_weight():
    q, k, v = sequences(t=LONG, s=LONG)
    bias = alibi_bias(torch.full((H,), 1000.0), LONG)
    mask = torch.arange(LONG)[None] == 0
    output = fused_attention(q, k, v, mask=mask, score_bias=bias)
    assert_same([output], [v[:, :, :1].expand_as(output)])


def test_one_long_query_finds_one_long_key_however_far():
    """The others are short, so that a bound by their mean length would drop it."""
    q, k, v = sequences(t=LONG, s=LONG)
    with torch.no_grad():
        q[:, :, -1] = k[:, :, 0] = (1.5 * LONG / D_K**0.5) ** 0.5
    options = {"causal": True, "score_bias": alibi_bias(torch.ones(H), LONG)}
    opened, weights = attention_with_weights(q, k, v, **options)
    assert weights[:, :, -1, 0].min() > 0.5
    assert_same([fused_attention(q, k, v, **options)], [opened])


@pytest.mark.parametrize(
    ("t", "gradients", "searched"),
    [(LONG, True, True), (LONG, False, False), (64, True, False)],
)
def test_negligible_keys_are_searched_where_that_saves_time(
    t: int, gradients: bool, searched: bool, monkeypatch: pytest.MonkeyPatch
):
    handed: list[Tensor] = []
    kernel = F.scaled_dot_product_attention

    def spy(*inputs: Tensor, attn_mask: Tensor, **given) -> Tensor:
        handed.append(attn_mask)
        return kernel(*inputs, attn_mask=attn_mask, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    inputs = sequences(t=t, s=t)
    with torch.set_grad_enabled(gradients):
        bias = alibi_bias(torch.full((H,), 4.0), t)
        fused_attention(*inputs, causal=True, score_bias=bias)
    assert (handed[0].isneginf() & causal_mask(t)).any() == searched


@pytest.mark.parametrize("one_column", ["mask", "score_bias"])
def test_a_window_keeps_a_single_column_for_all_keys(one_column: str):
    q, k, v = sequences()
    column = torch.randn(B, H, T, 1)
    if one_column == "mask":
        column = column > 0
        assert 0 < column.sum() < column.numel()
    # The first of the keys are out of reach of all queries.
    options = {"window": 2, one_column: column}
    output = fused_attention(q, k, v, **options)
    opened, _ = attention_with_weights(q, k, v, **options)
    assert_same(
        output_and_gradients(output, [q, k, v]),
        output_and_gradients(opened, [q, k, v]),
        q.dtype,
    )


def test_under_autocast_a_cpu_runs_the_kernel_in_float32(
    monkeypatch: pytest.MonkeyPatch,
):
    types: list[torch.dtype] = []
    kernel = F.scaled_dot_product_attention

    def spy(*inputs: Tensor, **given) -> Tensor:
        types.extend(x.dtype for x in inputs)
        types.append(kernel(*inputs, **given).dtype)
        return kernel(*inputs, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    inputs = [x.bfloat16() for x in sequences()]
    with torch.autocast("cpu", torch.bfloat16):
        output = fused_attention(*inputs)
    assert types == [torch.float32] * 4
    # One rounding, of the output, instead of those within the kernel.
    exact, _ = attention_with_weights(*(x.float() for x in inputs))
    assert torch.equal(output, exact.bfloat16()) or (
        (output - exact).abs().max() <= 2**-8 * exact.abs().max()
    )


@pytest.mark.parametrize("attend", ["open", "fused"])
@pytest.mark.parametrize("also", ["", "mask", "causal", "window"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_bias_of_minus_infinity_forbids_as_a_mask_does(
    dtype: torch.dtype, also: str, attend: str
):
    inputs = sequences(dtype=dtype)
    allowed = some_keys(T, S)
    numbers = torch.randn(B, H, T, S).to(dtype)
    bias = numbers.masked_fill(~allowed, -torch.inf)
    mask = ~allowed  # it allows the keys that the bias forbids, and the first
    mask[..., 0] = True
    options = {"": {}, "mask": {"mask": mask}, "causal": {"causal": True}}
    given = options.get(also, {"window": 2})
    expected, weights = attention_with_weights(
        *inputs,
        **given | {"mask": allowed & given.get("mask", allowed)},
        score_bias=numbers,
    )
    assert not weights.sum(-1).all()  # some rows are empty
    if attend == "open":
        output, found = attention_with_weights(*inputs, score_bias=bias, **given)
        torch.testing.assert_close(found, weights)
    else:
        output = fused_attention(*inputs, score_bias=bias, **given)
    assert_same(
        output_and_gradients(output, inputs),
        output_and_gradients(expected, inputs),
        dtype,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_a_trained_bias_has_functional_gradients(causal: bool):
    q, k, v = (x.detach() for x in sequences())
    bias = torch.randn(H, T, S)[None].requires_grad_()

    def total(q: Tensor) -> Tensor:
        output = fused_attention(q, k, v, causal=causal, score_bias=bias)
        return output.square().sum()

    functional = torch.func.grad(total)(q)
    functional.sum().backward()  # and the bias has second ones
    assert bias.grad.count_nonzero() > 0
    q.requires_grad_()
    total(q).backward()
    torch.testing.assert_close(functional, q.grad)


def test_scores_of_minus_infinity_alone_have_weights_of_zero():
    scores = torch.randn(T, S).masked_fill(~some_keys(T, S)[0, 0], -torch.inf)
    scores.requires_grad_()
    weights = attention_weights(scores)
    torch.testing.assert_close(weights.sum(-1), torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]))
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(("t", "s"), [(0, 3), (3, 0)])
def test_nothing_asked_and_nothing_known_are_no_error(t: int, s: int):
    q, k, v = (x.detach() for x in sequences(t=t, s=s))
    bias = torch.randn(H, 1, 1)[None]
    output = fused_attention(q, k, v, causal=True, score_bias=bias)
    opened, _ = attention_with_weights(q, k, v, causal=True, score_bias=bias)
    assert_same([output], [opened])
