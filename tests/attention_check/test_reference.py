"""The reference computes what this library's open attention computes."""

import copy

import pytest
import torch
from torch import Tensor, nn

from attention_check import Reference, Rotary, allowed, packed, together
from tested_transformer.attention import attention_with_weights
from tested_transformer.attentions import adjusted_attention_with_weights
from tested_transformer.multihead import merge_heads, split_heads
from tested_transformer.positions import alibi_bias, alibi_slopes, rotary_table, rotate

B, T, D, H, G = 3, 11, 24, 4, 2


def parts(num_kv_heads: int = G) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    width = num_kv_heads * D // H
    sizes = zip("qkvo", (D, width, width, D), strict=True)
    return {word: nn.Linear(D, size).double() for word, size in sizes}


def heads_of(
    projections: dict[str, nn.Module], x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    q = split_heads(projections["q"](x), H)
    k, v = (split_heads(projections[word](x), G) for word in "kv")
    return q, k, v


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


REAL = torch.arange(T) >= torch.tensor([[0], [3], [6]])


@pytest.mark.parametrize(
    ("pairing", "window"), [("halves", None), ("neighbors", None), ("halves", 3)]
)
def test_rotary_positions_windows_and_padding(
    x: Tensor, pairing: str, window: int | None
) -> None:
    projections = parts()
    rotary = Rotary(pairing=pairing, base=500.0)
    layer = Reference(
        **projections,
        num_heads=H,
        num_kv_heads=G,
        causal=True,
        rotary=rotary,
        window=window,
    )
    q, k, v = heads_of(projections, x)
    table = rotary_table(torch.arange(T), D // H, base=500.0)
    q, k = (rotate(tensor, table, pairing=pairing) for tensor in (q, k))
    mask = REAL[:, None, None]
    y, _ = attention_with_weights(q, k, v, mask=mask, causal=True, window=window)
    torch.testing.assert_close(
        layer(x, real=REAL), projections["o"](merge_heads(y)), rtol=0, atol=1e-6
    )
    for sizes in ((4, 1, 1, 5), (1,) * T):
        read = layer.read(x.split(sizes, dim=1))
        torch.testing.assert_close(read, layer(x), rtol=0, atol=1e-12)


def test_keys_of_distances_as_each_query_reads_them(x: Tensor) -> None:
    projections = parts()
    far = torch.randn(2 * T, D // H, dtype=torch.float64)  # a key for each distance

    def relative(layer: object, q: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return torch.einsum("bhtd,tsd->bhts", q, far[t[:, None] - s + T])

    settings = {"num_heads": H, "num_kv_heads": G, "causal": True, "scale": 0.3}
    layer = Reference(**projections, **settings, relative=relative)
    q, k, v = heads_of(projections, x)
    k, v = (tensor.repeat_interleave(H // G, dim=1) for tensor in (k, v))
    rows = [  # each query has keys of its own
        (q[:, :, t, None] * (k[:, :, : t + 1] + far[t - torch.arange(t + 1) + T]))
        .sum(dim=-1)
        .mul(0.3)
        .softmax(dim=-1)[..., None, :]
        @ v[:, :, : t + 1]
        for t in range(T)
    ]
    expected = projections["o"](merge_heads(torch.cat(rows, dim=2)))
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)
    read = layer.read(x.split((4, 1, 6), dim=1))
    torch.testing.assert_close(read, expected, rtol=0, atol=1e-12)


def test_alibi_a_cap_a_sink_and_a_scale(x: Tensor) -> None:
    projections = parts()
    sink = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    slopes = alibi_slopes(H).double()
    settings = {"scale": 0.3, "soft_cap": 0.7, "sink": sink}
    layer = Reference(
        **projections,
        num_heads=H,
        num_kv_heads=G,
        causal=True,
        alibi=slopes,
        **settings,
    )
    y, _ = adjusted_attention_with_weights(
        *heads_of(projections, x),
        causal=True,
        score_bias=alibi_bias(slopes, T, T),
        **settings,
    )
    torch.testing.assert_close(
        layer(x), projections["o"](merge_heads(y)), rtol=0, atol=1e-6
    )
    # The same, as a bias of one's own.
    twin = Reference(
        **projections,
        num_heads=H,
        num_kv_heads=G,
        causal=True,
        bias=lambda layer, t, s: -slopes[:, None, None] * (t[:, None] - s),
        **settings,
    )
    torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=1e-12)


def test_the_usual_slopes_for_a_power_of_two_and_between(x: Tensor) -> None:
    eight = Reference(**parts(), num_heads=8, num_kv_heads=2, alibi=True).slopes
    assert eight.tolist() == [2.0**-n for n in range(1, 9)]
    six = Reference(**parts(), num_heads=6, num_kv_heads=2, alibi=True).slopes
    assert six.tolist() == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]


def test_norms_may_follow_the_rotation_and_something_the_output(x: Tensor) -> None:
    projections, norms = parts(), [nn.LayerNorm(D // H).double() for _ in "qk"]
    for norm in norms:
        nn.init.normal_(norm.weight)
    settings = {"num_heads": H, "num_kv_heads": G, "causal": True, "rotary": Rotary()}
    settings |= {"norm_q": norms[0], "norm_k": norms[1]}
    q, k, v = heads_of(projections, x)
    table = rotary_table(torch.arange(T), D // H)
    for later in (False, True):
        pairs = zip(norms, (q, k), strict=True)
        turned = [
            norm(rotate(tensor, table)) if later else rotate(norm(tensor), table)
            for norm, tensor in pairs
        ]
        y, _ = attention_with_weights(*turned, v, causal=True)
        layer = Reference(
            **projections,
            **settings,
            norms_after_rotary=later,
            after=lambda layer, x, output: 2 * x + output,
        )
        expected = 2 * x + projections["o"](merge_heads(y))
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-6)


def test_a_scale_may_depend_on_how_many_keys_a_query_sees(x: Tensor) -> None:
    projections = parts()
    layer = Reference(
        **projections, num_heads=H, num_kv_heads=G, causal=True, scale=lambda n: n.log()
    )
    q, k, v = heads_of(projections, x)
    q = q * torch.arange(1, T + 1).log()[:, None]
    y, _ = attention_with_weights(q, k, v, causal=True, scale=1.0)
    torch.testing.assert_close(layer(x), projections["o"](merge_heads(y)))


@pytest.mark.parametrize("order", ["thirds", "heads", "groups"])
def test_packed_projections_lie_in_three_orders(x: Tensor, order: str) -> None:
    kv_heads = H if order == "heads" else G
    projections = parts(kv_heads)
    heads = {"q": H, "k": kv_heads, "v": kv_heads}
    rows = {
        word: projections[word].weight.unflatten(0, (count, -1))
        for word, count in heads.items()
    }
    if order == "thirds":
        weight = torch.cat([*rows.values()])
    else:
        groups = [rows[word].unflatten(0, (kv_heads, -1)) for word in "qkv"]
        weight = torch.cat(groups, dim=1).flatten(0, 1)
    joint = nn.Linear(D, weight.shape[0] * weight.shape[1], bias=False).double()
    joint.weight.data = weight.flatten(0, 1)
    for word in "qkv":
        projections[word].bias.data.zero_()
    unpacked = packed(joint, num_heads=H, num_kv_heads=kv_heads, order=order)
    layer = Reference(**unpacked, o=projections["o"])
    expected = Reference(**projections, num_heads=H, num_kv_heads=kv_heads)
    torch.testing.assert_close(layer(x), expected(x))


def test_a_list_of_heads_is_joined(x: Tensor) -> None:
    heads = [nn.Linear(D, 6).double() for _ in range(H)]
    output = together(*heads)(x)
    torch.testing.assert_close(output, torch.cat([one(x) for one in heads], dim=-1))


def test_a_copy_shares_its_parameters_with_the_copied_layer() -> None:
    layer = nn.ModuleDict(parts())
    reference = Reference(**layer, num_heads=H, num_kv_heads=G)
    layer, reference = copy.deepcopy((layer, reference))
    assert reference.q is layer["q"]
    assert "layer" not in dict(reference.bind(layer).named_modules())


def test_what_may_be_attended_to(x: Tensor) -> None:
    mask = allowed(x, causal=True, real=REAL)
    assert mask.shape == (B, 1, T, T)
    assert mask[1, 0, 5].tolist() == [False] * 3 + [True] * 3 + [False] * 5
    assert allowed(x, context=x[:, :4]).shape == (B, 1, T, 4)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="num_kv_heads=3 must divide num_heads=4"):
        Reference(**parts(), num_heads=H, num_kv_heads=3)
    with pytest.raises(TypeError, match="q must be a module or a function of the lay"):
        Reference(**parts() | {"q": 3}, num_heads=H)
    with pytest.raises(ValueError, match="pairing='odd' must be 'halves' or"):
        Rotary(pairing="odd")
    with pytest.raises(ValueError, match="order='odd' must be 'thirds', 'heads' or"):
        packed(nn.Linear(3, 9), num_heads=3, order="odd")
