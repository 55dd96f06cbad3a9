"""The fused attention is the open one, outputs and gradients, whatever it is given."""

import random

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tested_transformer.attention import attention_with_weights
from tested_transformer.kernels import fused_attention
from tested_transformer.masks import causal_mask, padding_mask
from tested_transformer.positions import alibi_bias

# Pairwise different, so that no two axes can be taken for each other.
B, H, T, S, D_K, D_V = 2, 6, 5, 7, 11, 13

# How far outputs of two orders of summation may drift apart, by dtype.
TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 5e-6,
    torch.bfloat16: 3e-2,
    torch.float16: 3e-3,
}
SHAPES = [(T, S), (S, T), (S, S), (1, S), (2, S), (T, 1), (1, 1)]
NEGATIVE = -torch.inf


def some_keys(t: int, s: int) -> Tensor:
    """Allow about half the pairs; the second query of each sequence gets nothing."""
    mask = torch.rand(B, H, t, s) < 0.5
    mask[:, :, 0, 0] = True
    if t > 1:
        mask[:, :, 1] = False
    return mask


# Of every shape that a mask or a bias can have.
MASKS = {
    "none": lambda t, s: None,
    "padding": lambda t, s: padding_mask(torch.tensor([s, max(s - 2, 0)]), s),
    "all padding": lambda t, s: padding_mask(torch.tensor([s, 0]), s),
    "pairs": lambda t, s: some_keys(t, s)[0, 0],
    "a row": lambda t, s: torch.arange(s)[None] % 2 == 0,
    "a column": lambda t, s: torch.rand(B, H, t, 1) < 0.7,
    "heads": lambda t, s: torch.rand(1, H, t, s) < 0.6,
    "keys of heads": lambda t, s: torch.rand(B, H, 1, s) < 0.6,
    "all": some_keys,
}


def draw_call(seed: int, dtype: torch.dtype) -> tuple[list[Tensor], dict]:
    """Draw inputs and options of a call: shapes, heads, mask, bias, window, scale."""
    choose = random.Random(seed)
    t, s = choose.choice(SHAPES)
    num_kv_heads = choose.choice([1, 2, 3, H, H])
    inputs = [
        torch.randn(B, heads, length, width, dtype=dtype, requires_grad=True)
        for heads, length, width in (
            (H, t, D_K),
            (num_kv_heads, s, D_K),
            (num_kv_heads, s, choose.choice([D_K, D_V])),
        )
    ]
    bias = choose.choice(["none", "none", "pairs", "a column", "heads", "all"])
    score_bias = None
    if bias != "none":
        shape = MASKS[bias](t, s).shape
        score_bias = torch.randn(shape, dtype=choose.choice([dtype, torch.float32]))
        if choose.random() < 0.4:  # some rows of it forbid every key
            score_bias = score_bias.masked_fill(~MASKS[bias](t, s), NEGATIVE)
    options = {
        "mask": MASKS[choose.choice([*MASKS])](t, s),
        "causal": choose.random() < 0.5,
        "window": choose.choice([None, None, 1, 2, 4, S + 3]),
        "scale": choose.choice([None, None, 0.3, 0.0, -0.3]),
        "score_bias": score_bias,
    }
    return inputs, options


def assert_fused_is_open(
    inputs: list[Tensor], options: dict, trained: tuple[Tensor, ...] = ()
) -> None:
    """Compare outputs and gradients."""
    fused = fused_attention(*inputs, **options)
    opened, _ = attention_with_weights(*inputs, **options)
    note = f"{[x.shape for x in inputs]}, {options}"
    close = TOLERANCE[inputs[0].dtype]
    assert_alike(fused, opened, [*inputs, *trained], close=close, note=note)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_fused_is_the_open_attention(dtype: torch.dtype):
    for seed in range(80):
        assert_fused_is_open(*draw_call(seed, dtype))


def test_so_it_is_without_a_kernel_which_is_stricter_about_masks():
    with sdpa_kernel(SDPBackend.MATH):
        for seed in range(80, 140):
            assert_fused_is_open(*draw_call(seed, torch.float32))


def test_a_bias_can_be_trained():
    for seed in range(300, 340):
        inputs, options = draw_call(seed, torch.float32)
        if options["score_bias"] is not None:
            bias = options["score_bias"].requires_grad_()
            assert_fused_is_open(inputs, options, (bias,))


@pytest.mark.parametrize(("t", "s"), [(0, 3), (3, 0)])
def test_nothing_asked_and_nothing_known_are_no_error(t: int, s: int):
    q, k, v = (torch.randn(B, H, n, D_K) for n in (t, s, s))
    for bias in (torch.randn(1, H, 1, 1), torch.randn(1, H, t, s)):
        options = {"causal": True, "score_bias": bias}
        opened, _ = attention_with_weights(q, k, v, **options)
        torch.testing.assert_close(fused_attention(q, k, v, **options), opened)


@pytest.mark.parametrize("attend", [attention_with_weights, fused_attention])
def test_under_autocast_types_may_differ(attend):
    q, k, v = torch.randn(3, B, H, T, D_K)
    expected, _ = attention_with_weights(q, k, v)
    for bias in (None, torch.zeros(T, T, dtype=torch.float64)):
        with torch.autocast("cpu", torch.bfloat16):
            output = attend(q, k, v.bfloat16(), score_bias=bias)
        output = output[0] if isinstance(output, tuple) else output
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(output.float(), expected, rtol=0.03, atol=0.03)


class Spy:
    """Stands in for PyTorch's kernel, and notes what it is given."""

    def __init__(self) -> None:
        self.kernel = F.scaled_dot_product_attention
        self.inputs: list[tuple[Tensor, ...]] = []
        self.masks: list[Tensor | None] = []
        self.causal: list[bool] = []
        self.outputs: list[Tensor] = []

    def __call__(self, *inputs: Tensor, attn_mask: Tensor | None, **options) -> Tensor:
        self.inputs.append(inputs)
        self.masks.append(attn_mask)
        self.causal.append(options["is_causal"])
        self.outputs.append(self.kernel(*inputs, attn_mask=attn_mask, **options))
        return self.outputs[-1]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return spy


def test_no_kernel_is_handed_a_row_with_nothing_to_attend_to(spy: Spy):
    """Zeros on every device must not depend on what its kernel makes of such a row."""
    for seed in range(80):
        inputs, options = draw_call(seed, torch.float32)
        fused_attention(*inputs, **options)
    for mask in spy.masks:
        if mask is not None:
            allowed = mask if mask.dtype == torch.bool else mask > NEGATIVE
            assert allowed.any(dim=-1).all()


@pytest.mark.parametrize(
    ("t", "s", "options", "handed"),
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
    t: int, s: int, options: dict, handed: str, spy: Spy
):
    # However many axes stand in front, and whatever their sizes are.
    for axes in ((), (B,), (B, H), (B, H, 1)):
        q, k, v = (torch.randn(*axes, length, D_K) for length in (t, s, s))
        if "mask" in options:
            options = options | {"mask": torch.rand(t, s) + torch.eye(t, s) > 0.5}
        if "score_bias" in options:
            options = options | {"score_bias": torch.randn(t, s)}
        output = fused_attention(q, k, v, **options)
        assert (spy.causal.pop(), spy.masks.pop() is not None) == (
            handed == "causal",
            handed == "mask",
        )
        opened, _ = attention_with_weights(q, k, v, **options)
        torch.testing.assert_close(output, opened, rtol=1e-5, atol=1e-5)


def test_a_window_reads_only_the_keys_in_reach(spy: Spy):
    # Two queries with a window of three reach four keys of seven.
    q, k, v = (torch.randn(B, H, length, D_K) for length in (2, S, S))
    output = fused_attention(q, k, v, window=3)
    assert [k.shape[-2] for _, k, _ in spy.inputs] == [4]
    opened, _ = attention_with_weights(q, k, v, window=3)
    torch.testing.assert_close(output, opened)


def test_one_query_reads_shared_keys_once(spy: Spy):
    q, k, v = (torch.randn(B, h, n, D_K) for h, n in ((H, 1), (2, S), (2, S)))
    fused_attention(q, k, v, mask=torch.ones(1, H, 1, S).bool(), causal=True)
    ((one, keys, values),) = spy.inputs
    assert one.shape == (B, 2, 3, D_K)
    assert (keys.data_ptr(), values.data_ptr()) == (k.data_ptr(), v.data_ptr())


def test_under_autocast_a_cpu_runs_the_kernel_in_float32(spy: Spy):
    inputs = [torch.randn(B, H, n, D_K).bfloat16().requires_grad_() for n in (T, S, S)]
    options = {"score_bias": torch.linspace(-2, 0, S)[None], "causal": True}
    with torch.autocast("cpu", torch.bfloat16):
        output = fused_attention(*inputs, **options)
    types = {x.dtype for x in [*spy.inputs[0], *spy.outputs]}
    assert types == {torch.float32}
    # One rounding, of outputs and gradients, instead of those within the kernel.
    leaves = [x.detach().float().requires_grad_() for x in inputs]
    exact, _ = attention_with_weights(*leaves, **options)
    direction = torch.randn(exact.shape).bfloat16()
    pairs = zip(
        [output, *torch.autograd.grad(output, inputs, direction)],
        [exact, *torch.autograd.grad(exact, leaves, direction.float())],
        strict=True,
    )
    for actual, expected in pairs:
        assert (actual - expected).abs().max() <= 2**-8 * expected.abs().max()


LONG = 150  # long enough for a search for negligible keys to pay


@pytest.mark.parametrize(
    ("dtype", "size", "scale", "negligible"),
    [
        (torch.float32, 1.0, None, True),
        (torch.float32, 3.0, 0.2, True),
        (torch.float64, 1.0, None, True),
        (torch.float64, 60.0, None, False),  # the scores outdo any bias
        (torch.float64, 1.0, 10.0, False),
    ],
    ids=str,
)
def test_keys_that_weigh_nothing_are_left_out_and_others_never(
    dtype: torch.dtype, size: float, scale: float | None, negligible: bool, spy: Spy
):
    inputs = [
        (factor * torch.randn(B, 3, LONG, D_K, dtype=dtype)).requires_grad_()
        for factor in (size, 1.0, 1.0)
    ]
    slopes = torch.tensor([1.0, 0.01, 4.0], dtype=dtype)
    bias = alibi_bias(slopes, LONG)
    options = {"causal": True, "score_bias": bias, "scale": scale}
    assert_fused_is_open(inputs, options)
    (handed,) = spy.masks
    assert handed is not None
    _, weights = attention_with_weights(*inputs, **options)
    left_out = handed.isneginf() & causal_mask(LONG)
    assert weights[left_out.expand_as(weights)].le(torch.finfo(dtype).eps ** 2).all()
    assert left_out[0].any(-1).any(-1).tolist() == [negligible, False, negligible]


def test_a_far_key_that_is_alone_keeps_its_weight():
    inputs = [torch.randn(B, H, LONG, D_K, requires_grad=True) for _ in range(3)]
    bias = alibi_bias(torch.full((H,), 1000.0), LONG)
    mask = torch.arange(LONG)[None] == 0
    output = fused_attention(*inputs, mask=mask, score_bias=bias)
    torch.testing.assert_close(output, inputs[2][:, :, :1].expand_as(output))


def test_one_long_query_finds_one_long_key_however_far():
    """The others, and other heads', are short: a bound by their mean would drop it."""
    q, k, v = (torch.randn(B, H, LONG, D_K, requires_grad=True) for _ in range(3))
    with torch.no_grad():
        q[:, 1, -1] = k[:, 1, 0] = (1.1 * LONG / D_K**0.5) ** 0.5
    options = {"causal": True, "score_bias": alibi_bias(torch.ones(H), LONG)}
    opened, weights = attention_with_weights(q, k, v, **options)
    assert weights[:, 1, -1, 0].min() > 0.5
    torch.testing.assert_close(
        fused_attention(q, k, v, **options), opened, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("t", "trained", "gradients", "searched"),
    [
        (LONG, "q", True, True),
        (LONG, "k", True, True),
        (LONG, "v", True, True),
        (LONG, "", True, False),
        (LONG, "qkv", False, False),
        (64, "qkv", True, False),
    ],
)
def test_negligible_keys_are_searched_where_that_saves_time(
    t: int, trained: str, gradients: bool, searched: bool, spy: Spy
):
    inputs = [torch.randn(B, H, t, D_K, requires_grad=x in trained) for x in "qkv"]
    with torch.set_grad_enabled(gradients):
        bias = alibi_bias(torch.full((H,), 4.0), t)
        fused_attention(*inputs, causal=True, score_bias=bias)
    (handed,) = spy.masks
    assert handed is not None
    assert (handed.isneginf() & causal_mask(t)).any() == searched


@pytest.mark.parametrize("causal", [False, True])
def test_a_trained_bias_has_functional_gradients(causal: bool):
    q, k, v = torch.randn(3, B, H, T, D_K)
    bias = torch.randn(1, H, T, T, requires_grad=True)

    def total(q: Tensor) -> Tensor:
        output = fused_attention(q, k, v, causal=causal, score_bias=bias)
        return output.square().sum()

    functional = torch.func.grad(total)(q)
    functional.sum().backward()  # and the bias has second ones
    assert bias.grad is not None
    assert bias.grad.count_nonzero() > 0
    q.requires_grad_()
    total(q).backward()
    torch.testing.assert_close(functional, q.grad)


class Masked(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return fused_attention(q, k, v, mask=mask)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # in torch.export
@pytest.mark.usefixtures("as_a_caller")
def test_an_exported_program_fills_no_booleans():
    # The models of ONNX do, but onnxruntime cannot run them.
    q, k, v = torch.randn(B, H, T, D_K), *torch.randn(2, B, H, S, D_K)
    program = torch.export.export(Masked(), (q, k, v, some_keys(T, S)))
    filled = [
        node.meta["val"].dtype
        for node in program.run_decompositions({}).graph.nodes
        if "masked_fill" in str(node.target) or "where" in str(node.target)
    ]
    assert filled
    assert torch.bool not in filled
    mask = some_keys(T, S)
    expected = fused_attention(q, k, v, mask=mask)
    torch.testing.assert_close(program.module()(q, k, v, mask), expected)
