"""One module, held against PyTorch's, against itself, and against leaks."""

import inspect
import re
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor, nn

from tested_transformer import multihead
from tested_transformer.attention import attention_with_weights
from tested_transformer.masks import padding_mask
from tested_transformer.multihead import MultiHeadAttention, merge_heads, split_heads
from tested_transformer.positions import rotary_table

# Pairwise different: batch, heads, queries, keys, head width, context width.
B, H, T, S, D_K, C = 2, 3, 5, 7, 4, 11
D = H * D_K


def as_pytorchs(layer: MultiHeadAttention, *, stacked: bool) -> dict[str, Tensor]:
    """Return the parameters of ours by the names that PyTorch's module has for them."""
    weights, biases = (
        [getattr(layer.get_submodule(f"{letter}_proj"), kind) for letter in "qkv"]
        for kind in ("weight", "bias")
    )
    named = {"out_proj.weight": layer.o_proj.weight}
    if stacked:
        named["in_proj_weight"] = torch.cat(weights)
    else:
        named |= {f"{x}_proj_weight": w for x, w in zip("qkv", weights, strict=True)}
    if layer.o_proj.bias is not None:
        named |= {"in_proj_bias": torch.cat(biases)}
        named |= {"out_proj.bias": layer.o_proj.bias}
    return named


@pytest.mark.parametrize(
    ("mask_name", "d_context", "bias", "fused"),
    [
        ("none", None, True, True),
        ("pairs", None, False, False),
        ("padding", D, True, False),
        ("padding", C, False, True),
        ("pairs", C, True, True),
    ],
)
def test_it_is_pytorchs_with_the_same_weights(
    mask_name: str, d_context: int | None, bias: bool, fused: bool
):
    settings = {"d_context": d_context, "bias": bias, "fused": fused}
    ours = MultiHeadAttention(d_model=D, num_heads=H, **settings)
    width = d_context or D
    theirs = nn.MultiheadAttention(
        D, H, bias=bias, kdim=width, vdim=width, batch_first=True
    )
    named = as_pytorchs(ours, stacked=theirs.in_proj_weight is not None)
    assert named.keys() == dict(theirs.named_parameters()).keys()
    x = torch.randn(B, T, D, requires_grad=True)
    context = None if d_context is None else torch.randn(B, S, d_context)
    keys, s = (x, T) if context is None else (context, S)
    mask, flags = None, dict[str, Any]()
    # PyTorch's module reads its masks the other way round: True = ignore.
    if mask_name == "pairs":
        mask = (torch.rand(T, s) < 0.5) | (torch.arange(s) == 0)
        flags = {"attn_mask": ~mask}
    elif mask_name == "padding":
        mask = padding_mask(torch.tensor([s, s - 2]))
        flags = {"key_padding_mask": ~mask[:, 0, 0]}

    flags["average_attn_weights"] = False
    expected = torch.func.functional_call(theirs, named, (x, keys, keys), flags)
    output = ours(x, context=context, mask=mask)
    assert_alike(output, expected[0], [x, *ours.parameters()], close=1e-5)
    opened = ours(x, context=context, mask=mask, return_weights=True)
    torch.testing.assert_close(opened, expected, rtol=1e-4, atol=1e-5)


def test_the_switch_chooses_the_path(monkeypatch: pytest.MonkeyPatch):
    taken: list[str] = []
    for path in (multihead.fused_attention, multihead.attention_with_weights):

        def call(*args, path=path, **options):
            taken.append(path.__name__)
            return path(*args, **options)

        monkeypatch.setattr(multihead, path.__name__, call)
    x = torch.randn(B, T, D)
    for fused in (True, False):
        MultiHeadAttention(d_model=D, num_heads=H, fused=fused)(x)
    MultiHeadAttention(d_model=D, num_heads=H)(x, return_weights=True)
    assert taken == ["fused_attention", *["attention_with_weights"] * 2]


@given(
    b=st.integers(1, 3), t=st.integers(1, 4), h=st.integers(1, 4), d_k=st.integers(1, 4)
)
def test_merging_undoes_splitting(b: int, t: int, h: int, d_k: int):
    x = torch.arange(b * t * h * d_k).float().view(b, t, h * d_k)
    heads = split_heads(x, h)
    assert heads.shape == (b, h, t, d_k)
    assert torch.equal(merge_heads(heads), x)
    for head in range(h):
        assert torch.equal(heads[:, head], x[..., head * d_k : (head + 1) * d_k])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 65, "num_heads": 4}, "d_model=65 must be divisible by"),
        ({"d_context": 0}, "d_context=0 must be positive"),
        ({"head_dim": 0}, "head_dim=0 must be positive"),
        ({"dropout": 1.5}, "dropout=1.5 must lie between 0 and 1"),
        ({"num_kv_heads": 2}, "num_kv_heads=2 must divide num_heads=3"),
    ],
)
def test_bad_settings_are_named(change, message: str):
    with pytest.raises(ValueError, match=f"^{message}"):
        MultiHeadAttention(**({"d_model": D, "num_heads": H} | change))


def test_its_signature_is_the_one_that_is_written():
    names = list(inspect.signature(MultiHeadAttention).parameters)
    assert names[:2] == ["d_model", "num_heads"]
    assert "args" not in names


def test_parameters_are_made_where_and_as_they_are_wanted():
    layer = MultiHeadAttention(
        d_model=D, num_heads=H, device="meta", dtype=torch.float16
    )
    for parameter in layer.parameters():
        assert parameter.device.type == "meta"
        assert parameter.dtype == torch.float16


def test_sizes_of_one_will_do():
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=1, head_dim=1)
    output = layer(torch.randn(B, T, D), context=torch.randn(B, S, 1))
    assert output.shape == (B, T, D)
    one = MultiHeadAttention(d_model=1, num_heads=1, dropout=1.0)
    assert one(torch.randn(B, T, 1)).eq(one.o_proj.bias).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"x": torch.ones(2, 5, 13)}, r"x must be \(batch, length, 12\); it is \(2"),
        ({"x": torch.ones(5, 12)}, r"x must be \(batch, length, 12\); it is \(5, 12\)"),
        (
            {"x": torch.ones(2, 5, 12), "context": torch.ones(2, 7, 12)},
            r"context must be \(batch, length, 11\); it is \(2, 7, 12\)",
        ),
        (
            {"x": torch.ones(2, 5, 12), "context": torch.ones(1, 7, 11)},
            "x and context must have the same batch size; they have 2 and 1",
        ),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_bad_calls_are_named(call, message: str):
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=C)
    with pytest.raises(ValueError, match=f"^{message}"):
        layer(**call)


@pytest.mark.usefixtures("as_a_caller")
def test_splitting_and_merging_name_the_axes():
    message = r"^the width of x=10 must be divisible by num_heads=3$"
    with pytest.raises(ValueError, match=message):
        split_heads(torch.ones(2, 5, 10), 3)
    with pytest.raises(ValueError, match=r"^x must be \(B, T, D\); it is \(2, 8\)$"):
        split_heads(torch.ones(2, 8), 4)
    message = r"^heads must be \(B, H, T, d_k\); it is \(2, 8, 4\)$"
    with pytest.raises(ValueError, match=message):
        merge_heads(torch.ones(2, 8, 4))


def test_it_shows_its_heads():
    shown = repr(MultiHeadAttention(d_model=D, num_heads=H, num_kv_heads=1))
    assert (
        "num_heads=3, num_kv_heads=1, head_dim=4, dropout=0.0, fused=True, "
        "qk_norm=False" in shown
    )


def test_heads_may_be_wider_or_narrower_than_the_model():
    layer = MultiHeadAttention(d_model=11, num_heads=2, head_dim=3, num_kv_heads=1)
    shapes = [layer.get_parameter(f"{p}_proj.weight").shape for p in "qkvo"]
    assert shapes == [(6, 11), (3, 11), (3, 11), (11, 6)]
    x = torch.randn(2, 5, 11)
    q, k, v = split_heads(layer.q_proj(x), 2), layer.k_proj(x), layer.v_proj(x)
    heads, _ = attention_with_weights(q, k[:, None], v[:, None], causal=True)
    torch.testing.assert_close(layer(x, causal=True), layer.o_proj(merge_heads(heads)))


def test_normed_queries_and_keys_have_the_length_of_a_root():
    layer = MultiHeadAttention(d_model=D, num_heads=H, qk_norm=True, fused=False)
    x = torch.randn(B, T, D)
    _, weights = layer(100 * x, return_weights=True)
    q, k = (
        split_heads(projection(100 * x), H)
        for projection in (layer.q_proj, layer.k_proj)
    )
    q, k = (heads - heads.mean(-1, keepdim=True) for heads in (q, k))
    # Cosines, times the root of d_k: root times root, over the root of the scale.
    cosines = torch.cosine_similarity(q[:, :, :, None], k[:, :, None], dim=-1)
    torch.testing.assert_close(
        weights, (cosines * D_K**0.5).softmax(-1), rtol=1e-3, atol=1e-4
    )


@pytest.mark.usefixtures("as_a_caller")
def test_a_rotary_table_of_another_shape_is_refused():
    layer, x = MultiHeadAttention(d_model=D, num_heads=H), torch.randn(B, T, D)
    table = rotary_table(torch.arange(T), D_K)
    for misfit in (
        rotary_table(torch.arange(T), 2 * D_K),
        rotary_table(torch.arange(T + 1), D_K),
        table[:1],
        table[:, None].expand(-1, B, -1, -1),  # lacks the axis of the heads
        table[:, None, None].expand(-1, B + 1, -1, -1, -1),
        table[:, None, None].expand(-1, B, H + 1, -1, -1),
    ):
        message = (
            "rotary must be the rotary_table of the positions of x, (2, 5, 2), or of "
            f"those of each sequence, (2, 2, 1, 5, 2); it is {tuple(misfit.shape)}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            layer(x, rotary=misfit)


def test_what_belongs_to_self_attention_is_refused_across():
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    x = torch.randn(B, T, D)
    cache = layer.new_cache(B, S)
    for name, extra in (
        ("cache", cache),
        ("rotary", rotary_table(torch.arange(T), D_K)),
    ):
        message = f"^{name} belongs to self-attention: give no context$"
        with pytest.raises(ValueError, match=message):
            layer(x, context=x, **{name: extra})
    assert cache.length == 0


class Rotary(nn.Module):
    """A layer with a table of positions, cut to the length of what it reads."""

    def __init__(self, *, num_kv_heads: int, window: int | None) -> None:
        super().__init__()
        self.layer = MultiHeadAttention(
            d_model=D, num_heads=H, num_kv_heads=num_kv_heads
        )
        self.window = window
        table = rotary_table(torch.arange(64), D_K)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rotary = self.table[:, : x.shape[1]]
        return self.layer(x, causal=True, window=self.window, rotary=rotary)


# To make a program takes a second or more: not every setting in every way.
@pytest.mark.parametrize(
    ("num_kv_heads", "window", "way"),
    [(3, None, "exported"), (1, 4, "compiled")],
)
@pytest.mark.usefixtures("as_a_caller")
def test_it_compiles_to_one_program_with_a_length_left_open(
    num_kv_heads: int, window: int | None, way: str
):
    torch.compiler.reset()
    module = Rotary(num_kv_heads=num_kv_heads, window=window)
    if way == "compiled":
        program = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    else:
        length = torch.export.Dim("length", min=2, max=64)
        program = torch.export.export(
            module,
            (torch.randn(B, T, D),),
            dynamic_shapes={"x": {1: length}},
            strict=True,
        ).module()
    for t in (2, 3, 11, 64):
        x = torch.randn(B, t, D)
        torch.testing.assert_close(program(x), module(x))


class Cross(nn.Module):
    """A layer whose context has a length of its own."""

    def __init__(self, **how: bool) -> None:
        super().__init__()
        self.layer, self.how = MultiHeadAttention(d_model=D, num_heads=H), how

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.layer(x, context=context, **self.how)


@pytest.mark.parametrize(
    ("example", "how"), [((5, 7), {}), ((7, 7), {"causal": True})], ids=str
)
@pytest.mark.usefixtures("as_a_caller")
def test_cross_attention_is_exported_for_equal_lengths_too(
    example: tuple[int, int], how: dict[str, bool]
):
    module = Cross(**how)
    t, s = (torch.export.Dim(name, min=1, max=64) for name in "ts")
    x, context = (torch.randn(B, length, D) for length in example)
    program = torch.export.export(
        module, (x, context), dynamic_shapes=({1: t}, {1: s})
    ).module()
    for t, s in ((5, 7), (6, 6), (7, 5), (1, 1), (1, 9), (64, 2)):
        x, context = torch.randn(B, t, D), torch.randn(B, s, D)
        torch.testing.assert_close(program(x, context), module(x, context))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0]], r"^x must be a tensor, \(batch, length, 12\); it is a list$"),
        (
            torch.ones(2, 5, 12, dtype=torch.float64),
            r"^x is float64, the layer's weights float32: "
            r"write x\.to\(torch\.float32\), or layer\.to\(torch\.float64\)$",
        ),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_what_is_no_tensor_or_of_another_type_is_named(x: object, message: str):
    layer = MultiHeadAttention(d_model=12, num_heads=3)
    with pytest.raises(TypeError, match=message):
        layer(x)
    with pytest.raises(TypeError, match=re.sub(r"\bx\b", "context", message)):
        layer(torch.ones(2, 5, 12), context=x)
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(2, 5, 12, dtype=torch.bfloat16))
