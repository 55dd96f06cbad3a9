"""One module, held against PyTorch's, against itself, and against leaks."""

import inspect
import re

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tested_transformer import multihead
from tested_transformer.masks import causal_mask, padding_mask, sliding_window_mask
from tested_transformer.multihead import MultiHeadAttention, merge_heads, split_heads
from tested_transformer.positions import rotary_table, rotate

# Pairwise different: batch, heads, queries, keys, head width, context width.
B, H, T, S, D_K, C = 2, 3, 5, 7, 4, 11
D = H * D_K


def pytorchs(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Give PyTorch's module the same weights."""
    theirs = nn.MultiheadAttention(
        D,
        H,
        bias=ours.q_proj.bias is not None,
        kdim=ours.k_proj.in_features,
        vdim=ours.v_proj.in_features,
        batch_first=True,
    )
    projections = [ours.q_proj, ours.k_proj, ours.v_proj]
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        else:
            theirs.q_proj_weight.copy_(ours.q_proj.weight)
            theirs.k_proj_weight.copy_(ours.k_proj.weight)
            theirs.v_proj_weight.copy_(ours.v_proj.weight)
        theirs.out_proj.weight.copy_(ours.o_proj.weight)
        if theirs.in_proj_bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            theirs.out_proj.bias.copy_(ours.o_proj.bias)
    return theirs


def gradients_of(output: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(output.shape, generator=generator).to(output.dtype)
    return torch.autograd.grad(output, inputs, direction)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("d_context", [None, D, C])
@pytest.mark.parametrize("mask_name", ["none", "pairs", "padding"])
def test_it_is_pytorchs_with_the_same_weights(
    mask_name: str, d_context: int | None, bias: bool, fused: bool
):
    ours = MultiHeadAttention(
        d_model=D, num_heads=H, d_context=d_context, bias=bias, fused=fused
    )
    theirs = pytorchs(ours)
    x = torch.randn(B, T, D, requires_grad=True)
    if d_context is None:
        context, inputs = None, [x]
    else:
        context = torch.randn(B, S, d_context, requires_grad=True)
        inputs = [x, context]
    s = T if context is None else S
    mask = None
    flags: dict[str, Tensor] = {}
    # PyTorch's module reads its masks the other way round: True = ignore.
    if mask_name == "pairs":
        mask = (torch.rand(T, s) < 0.5) | (torch.arange(s) == 0)
        flags = {"attn_mask": ~mask}
    elif mask_name == "padding":
        mask = padding_mask(torch.tensor([s, s - 2]))
        flags = {"key_padding_mask": ~mask[:, 0, 0]}

    output = ours(x, context=context, mask=mask)
    keys = x if context is None else context
    expected, _ = theirs(x, keys, keys, need_weights=False, **flags)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        gradients_of(output, [*inputs, ours.o_proj.weight]),
        gradients_of(expected, [*inputs, theirs.out_proj.weight]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    _, weights = ours(x, context=context, mask=mask, return_weights=True)
    _, expected_weights = theirs(x, keys, keys, average_attn_weights=False, **flags)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-4, atol=1e-5)


def test_gradients_reach_every_projection_as_they_do_in_pytorchs():
    ours = MultiHeadAttention(d_model=D, num_heads=H)
    theirs = pytorchs(ours)
    x = torch.randn(B, T, D)
    mine = gradients_of(ours(x), list(ours.parameters()))
    named = dict(zip((n for n, _ in ours.named_parameters()), mine, strict=True))
    weight, bias = gradients_of(
        theirs(x, x, x, need_weights=False)[0],
        [theirs.in_proj_weight, theirs.in_proj_bias],
    )
    stacked = [named[f"{p}_proj.weight"] for p in "qkv"]
    torch.testing.assert_close(torch.cat(stacked), weight, rtol=1e-4, atol=1e-5)
    stacked = [named[f"{p}_proj.bias"] for p in "qkv"]
    torch.testing.assert_close(torch.cat(stacked), bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_fused_and_open_agree(
    cross: bool, causal: bool, dtype: torch.dtype, tolerance: float
):
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=C if cross else None)
    layer = layer.to(dtype)
    x = torch.randn(B, T, D, dtype=dtype, requires_grad=True)
    context = torch.randn(B, S, C, dtype=dtype) if cross else None
    mask = padding_mask(torch.tensor([S if cross else T, 0]), S if cross else T)
    call = {"context": context, "mask": mask, "causal": causal}
    wanted = [x, *layer.parameters()]
    fused = layer(x, **call)
    with_weights, _ = layer(x, **call, return_weights=True)
    layer.fused = False
    opened = layer(x, **call)
    assert torch.equal(with_weights, opened)
    torch.testing.assert_close(fused, opened, rtol=tolerance, atol=tolerance)
    for one, other in zip(
        gradients_of(fused, wanted), gradients_of(opened, wanted), strict=True
    ):
        assert other.isfinite().all()
        torch.testing.assert_close(one, other, rtol=tolerance, atol=5 * tolerance)


def test_the_switch_chooses_the_path(monkeypatch: pytest.MonkeyPatch):
    taken: list[str] = []

    def watched(name: str, path):
        def call(*arguments, **options):
            taken.append(name)
            return path(*arguments, **options)

        return call

    for name in ("fused_attention", "attention_with_weights"):
        monkeypatch.setattr(multihead, name, watched(name, getattr(multihead, name)))
    x = torch.randn(B, T, D)
    for fused in (True, False):
        MultiHeadAttention(d_model=D, num_heads=H, fused=fused)(x)
    MultiHeadAttention(d_model=D, num_heads=H)(x, return_weights=True)
    assert taken == [
        "fused_attention",
        "attention_with_weights",
        "attention_with_weights",
    ]


@pytest.mark.parametrize("fused", [True, False])
def test_the_past_does_not_move_when_the_future_does(fused: bool):
    layer = MultiHeadAttention(d_model=D, num_heads=H, fused=fused)
    x = torch.randn(B, T, D, requires_grad=True)
    output = layer(x, causal=True)
    for t in range(T):
        (gradient,) = torch.autograd.grad(output[:, t].sum(), x, retain_graph=True)
        assert gradient[:, t + 1 :].eq(0).all()
        assert gradient[:, : t + 1].ne(0).all()


def test_sequences_of_a_batch_do_not_meet():
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    whole = layer(x, context=context)
    for b in range(B):
        alone = layer(x[b : b + 1], context=context[b : b + 1])
        torch.testing.assert_close(whole[b : b + 1], alone)


def test_padding_changes_nothing_for_the_real_tokens():
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    padded = layer(x, context=context, mask=padding_mask(torch.tensor([4, 4]), S))
    torch.testing.assert_close(padded, layer(x, context=context[:, :4]))


def test_nothing_to_attend_to_leaves_the_output_bias():
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    nothing = padding_mask(torch.tensor([0, 0]), T)
    output = layer(torch.randn(B, T, D), mask=nothing)
    torch.testing.assert_close(output, layer.o_proj.bias.expand(B, T, D))


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


def test_weights_have_a_row_for_each_query_of_each_head():
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=C, dropout=0.5)
    x, context = torch.randn(B, T, D), torch.randn(B, S, C)
    output, weights = layer(x, context=context, return_weights=True)
    assert output.shape == (B, T, D)
    assert weights.shape == (B, H, T, S)
    # Before dropout, so that they still sum to one while training.
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_stops_in_eval(fused: bool):
    layer = MultiHeadAttention(d_model=D, num_heads=H, dropout=0.5, fused=fused)
    x = torch.randn(B, T, D)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    plain = MultiHeadAttention(d_model=D, num_heads=H, fused=fused)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), plain(x))


@pytest.mark.parametrize("num_heads", [1, 2, 8, 64])
def test_the_number_of_heads_costs_no_parameters(num_heads: int):
    layer = MultiHeadAttention(d_model=512, num_heads=num_heads)
    # Four matrices of 512 by 512, four biases of 512.
    assert sum(p.numel() for p in layer.parameters()) == 4 * 512 * 512 + 4 * 512
    assert 4 * 512 * 512 + 4 * 512 == 1_050_624


def test_the_projections_have_the_names_of_the_field():
    names = MultiHeadAttention(d_model=D, num_heads=H, bias=False).state_dict()
    assert list(names) == [f"{p}_proj.weight" for p in "qkvo"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"d_model": 65, "num_heads": 4},
            "d_model=65 must be divisible by num_heads=4",
        ),
        ({"num_heads": 0}, "num_heads=0 must be positive"),
        ({"d_model": -12}, "d_model=-12 must be positive"),
        ({"d_context": 0}, "d_context=0 must be positive"),
        ({"head_dim": 0}, "head_dim=0 must be positive"),
        ({"num_heads": 0, "head_dim": 5}, "num_heads=0 must be positive"),
        ({"dropout": 1.5}, "dropout=1.5 must lie between 0 and 1"),
        ({"num_kv_heads": 2}, "num_kv_heads=2 must divide num_heads=3"),
        ({"num_kv_heads": 0}, "num_kv_heads=0 must be positive"),
    ],
)
def test_bad_settings_are_named(change, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
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
        (
            {"x": torch.ones(2, 5, 13)},
            r"x must be \(batch, length, 12\); it is \(2, 5, 13\)",
        ),
        ({"x": torch.ones(5, 12)}, r"x must be \(batch, length, 12\); it is \(5, 12\)"),
        (
            {"x": torch.ones(2, 5, 12), "context": torch.ones(2, 7, 12)},
            r"context must be \(batch, length, 11\); it is \(2, 7, 12\)",
        ),
        (
            {"x": torch.ones(2, 5, 12), "context": torch.ones(1, 7, 11)},
            "x and context must have the same batch size; they have 2 and 1",
        ),
        (
            {
                "x": torch.ones(2, 5, 12),
                "context": torch.ones(2, 7, 11),
                "mask": torch.ones(2, 7, dtype=torch.bool),
            },
            r"mask is \(2, 7\) but must be .*the scores are \(2, 3, 5, 7\)"
            r". For a mask of tokens, \(B, S\), write mask=token_mask\(mask\)",
        ),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_bad_calls_are_named(call, message: str):
    layer = MultiHeadAttention(d_model=D, num_heads=H, d_context=C)
    with pytest.raises(ValueError, match=f"^{message}$"):
        layer(**call)


@pytest.mark.usefixtures("as_a_caller")
def test_split_heads_names_the_width():
    with pytest.raises(
        ValueError, match=r"^the width of x=10 must be divisible by num_"
    ):
        split_heads(torch.ones(2, 5, 10), 3)


@pytest.mark.usefixtures("as_a_caller")
def test_splitting_and_merging_name_the_axes():
    with pytest.raises(ValueError, match=r"^x must be \(B, T, D\); it is \(2, 8\)$"):
        split_heads(torch.ones(2, 8), 4)
    message = r"^heads must be \(B, H, T, d_k\); it is \(2, 8, 4\)$"
    with pytest.raises(ValueError, match=message):
        merge_heads(torch.ones(2, 8, 4))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.usefixtures("as_a_caller")
def test_it_compiles_whole_for_any_length(causal: bool, fused: bool):
    torch.compiler.reset()
    layer = MultiHeadAttention(d_model=D, num_heads=H, fused=fused)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for t in (3, 5, 7):
        x = torch.randn(B, t, D)
        torch.testing.assert_close(compiled(x, causal=causal), layer(x, causal=causal))


def test_it_shows_its_heads():
    shown = repr(MultiHeadAttention(d_model=D, num_heads=H, num_kv_heads=1))
    assert (
        "num_heads=3, num_kv_heads=1, head_dim=4, dropout=0.0, fused=True, "
        "qk_norm=False" in shown
    )


def test_causal_mask_and_flag_are_one():
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    x = torch.randn(B, T, D)
    torch.testing.assert_close(layer(x, causal=True), layer(x, mask=causal_mask(T)))


def with_a_key_for_each_head(shared: MultiHeadAttention) -> MultiHeadAttention:
    """Write the shared keys and values out, once for each head of the group."""
    group = shared.num_heads // shared.num_kv_heads
    full = MultiHeadAttention(
        d_model=shared.q_proj.in_features, num_heads=shared.num_heads
    )
    state = shared.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        heads = state[name].unflatten(0, (shared.num_kv_heads, shared.head_dim))
        copies = [head for head in heads for _ in range(group)]
        state[name] = torch.cat(copies)
    full.load_state_dict(state)
    return full


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_shared_keys_are_repeated_keys(num_kv_heads: int, fused: bool):
    num_heads = 6
    shared = MultiHeadAttention(
        d_model=num_heads * D_K,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        fused=fused,
    )
    full = with_a_key_for_each_head(shared)
    x = torch.randn(B, T, num_heads * D_K, requires_grad=True)
    output, expected = shared(x, causal=True), full(x, causal=True)
    torch.testing.assert_close(output, expected)
    assert shared.k_proj.weight.shape == (num_kv_heads * D_K, num_heads * D_K)
    # What a shared key learns is the sum of what its copies would.
    group = num_heads // num_kv_heads
    mine = gradients_of(output, [x, shared.k_proj.weight, shared.v_proj.weight])
    copies = gradients_of(expected, [x, full.k_proj.weight, full.v_proj.weight])
    torch.testing.assert_close(mine[0], copies[0], rtol=1e-4, atol=1e-5)
    for gradient, many in zip(mine[1:], copies[1:], strict=True):
        summed = many.unflatten(0, (num_kv_heads, group, D_K)).sum(1).flatten(0, 1)
        torch.testing.assert_close(gradient, summed, rtol=1e-4, atol=1e-5)


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


def test_a_rotary_table_turns_queries_and_keys_and_not_values():
    layer = MultiHeadAttention(d_model=D, num_heads=H, fused=False)
    x, table = torch.randn(B, T, D), rotary_table(torch.arange(T), D_K)
    output, weights = layer(x, rotary=table, return_weights=True)
    q, k, v = (
        split_heads(projection(x), H)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    scores = rotate(q, table) @ rotate(k, table).transpose(-2, -1) / D_K**0.5
    torch.testing.assert_close(weights, scores.softmax(-1))
    torch.testing.assert_close(output, layer.o_proj(merge_heads(weights @ v)))


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize(
    "table",
    [
        rotary_table(torch.arange(T), 2),
        rotary_table(torch.arange(T), 2 * D_K),
        rotary_table(torch.arange(1), D_K),
        rotary_table(torch.arange(T + 1), D_K),
        rotary_table(torch.arange(T), D_K)[0],
        rotary_table(torch.arange(T), D_K)[0, 0],
        rotary_table(torch.arange(T), D_K)[:1],
        # A table for each sequence lacks the axis of the heads.
        rotary_table(torch.arange(T).expand(B, -1), D_K),
        rotary_table(torch.arange(T).expand(B + 1, -1), D_K)[:, :, None],
        rotary_table(torch.arange(T).expand(B, -1), D_K)[:, :, None].expand(
            -1, -1, H + 1, -1, -1
        ),
    ],
    ids=lambda table: str(tuple(table.shape)),
)
def test_a_rotary_table_of_another_shape_is_refused(table: Tensor):
    layer = MultiHeadAttention(d_model=D, num_heads=H)
    shape = re.escape(str(tuple(table.shape)))
    message = (
        r"^rotary must be the rotary_table of the positions of x, \(2, 5, 2\), or of "
        rf"those of each sequence, \(2, 2, 1, 5, 2\); it is {shape}$"
    )
    with pytest.raises(ValueError, match=message):
        layer(torch.randn(B, T, D), rotary=table)


def test_each_sequence_may_have_a_rotary_table_of_its_own():
    layer, x = MultiHeadAttention(d_model=D, num_heads=H), torch.randn(B, T, D)
    tables = [rotary_table(torch.arange(first, first + T), D_K) for first in (0, 3)]
    output = layer(x, rotary=torch.stack(tables, dim=1)[:, :, None])
    for each, table, right in zip(x, tables, output, strict=True):
        torch.testing.assert_close(layer(each[None], rotary=table)[0], right)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 3])
@pytest.mark.parametrize("steps", [[4, 1, 2], [1] * S, [S]], ids=str)
def test_with_a_cache_the_parts_are_the_whole(
    steps: list[int], num_kv_heads: int, fused: bool
):
    layer = MultiHeadAttention(
        d_model=D, num_heads=H, num_kv_heads=num_kv_heads, qk_norm=True, fused=fused
    )
    x, table = torch.randn(B, S, D), rotary_table(torch.arange(S), D_K)
    cache = layer.new_cache(B, S)
    parts: list[Tensor] = []
    with torch.no_grad():
        for part, turns in zip(x.split(steps, 1), table.split(steps, 1), strict=True):
            parts.append(layer(part, causal=True, rotary=turns, cache=cache))
        whole = layer(x, causal=True, rotary=table)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


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


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_heads_may_be_wider_or_narrower_than_the_model(num_kv_heads: int, fused: bool):
    layer = MultiHeadAttention(
        d_model=11, num_heads=2, head_dim=3, num_kv_heads=num_kv_heads, fused=fused
    )
    assert layer.q_proj.weight.shape == (6, 11)
    assert layer.k_proj.weight.shape == (3 * num_kv_heads, 11)
    assert layer.o_proj.weight.shape == (11, 6)
    x = torch.randn(2, 5, 11)
    q, k, v = (
        split_heads(each(x), heads)
        for each, heads in (
            (layer.q_proj, 2),
            (layer.k_proj, num_kv_heads),
            (layer.v_proj, num_kv_heads),
        )
    )
    keys = [q @ k[:, [head // (2 // num_kv_heads)]].mT for head in range(2)]
    scores = torch.stack([keys[head][:, head] for head in range(2)], dim=1) / 3**0.5
    future = torch.ones(5, 5).triu(diagonal=1).bool()
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    heads = weights @ v.repeat_interleave(2 // num_kv_heads, dim=1)
    wanted = layer.o_proj(merge_heads(heads))
    torch.testing.assert_close(layer(x, causal=True), wanted)


@pytest.mark.parametrize("fused", [True, False])
def test_a_window_is_the_window_mask(fused: bool):
    layer = MultiHeadAttention(d_model=D, num_heads=H, fused=fused)
    x = torch.randn(B, T, D)
    expected = layer(x, mask=sliding_window_mask(T, window=2))
    torch.testing.assert_close(layer(x, window=2), expected)
    torch.testing.assert_close(layer(x, causal=True, window=2), expected)
    _, weights = layer(x, window=2, return_weights=True)
    assert torch.equal(weights > 0, sliding_window_mask(T, window=2).expand(B, H, T, T))


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
    [
        (3, None, "traced"),
        (1, None, "exported"),
        (1, 4, "traced"),
        (1, 4, "compiled"),
    ],
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
            strict=way == "traced",
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


@pytest.mark.parametrize("how", [{}, {"causal": True}], ids=str)
@pytest.mark.parametrize("example", [(5, 7), (7, 7)], ids=str)
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
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.ones(2, 5, 12, dtype=torch.bfloat16))
