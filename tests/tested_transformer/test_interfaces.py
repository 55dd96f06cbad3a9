"""The contract of an attention layer, asked of every implementation."""

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor, nn

from tested_transformer.attentions import (
    ATTENTIONS,
    AdjustedSoftmax,
    ChosenBlocks,
    ChosenKeys,
    Compressed,
    DeltaRule,
    Differential,
    Latent,
    StateCache,
    attention_named,
    name_of,
)
from tested_transformer.cache import Cache
from tested_transformer.interfaces import Attention, AttentionLayer, LayerSettings
from tested_transformer.masks import sliding_window_mask, token_mask
from tested_transformer.multihead import Softmax
from tested_transformer.positions import rotary_table
from tested_transformer.training import Recipe, make_optimizers

# Pairwise different: batch, heads, head width, tokens, width of the model.
B, H, D_K, T, D = 2, 6, 4, 37, 22
USUAL = LayerSettings(
    d_model=D, num_heads=H, head_dim=D_K, num_kv_heads=H, dtype=torch.float64
)
GROUPED = replace(USUAL, num_kv_heads=2)
# Each with a name, with its defaults; and those that want other settings here.
LAYERS: dict[str, tuple[Attention, LayerSettings]] = {
    name: (attention, USUAL if "num_kv_heads" in attention.unsupported else GROUPED)
    for name, attention in ATTENTIONS.items()
} | {
    "softmax": (Softmax(), USUAL),
    "grouped": (Softmax(), replace(GROUPED, bias=False)),
    "qk_norm": (Softmax(), replace(GROUPED, qk_norm=True)),
    "qk_norm together": (Softmax(), replace(GROUPED, qk_norm="projection")),
    "soft_capped": (AdjustedSoftmax(soft_cap=0.7), replace(USUAL, qk_norm=True)),
    "gated": (AdjustedSoftmax(gate="features", scale=0.3), GROUPED),
    "gated heads": (AdjustedSoftmax(gate="heads"), replace(USUAL, qk_norm=True)),
    "differential": (Differential(), replace(GROUPED, qk_norm=True, layer=2)),
    "blocks": (ChosenBlocks(block_size=3), replace(GROUPED, qk_norm=True)),
    # Queries up to the 18th read all keys; the indexer's key is cut into uneven slices.
    "indexer": (ChosenKeys(keys_per_query=18, index_dim=5), GROUPED),
    "compressed": (Compressed(compress=3, window=5), replace(USUAL, bias=False)),
    # Queries up to the 18th read all entries.
    "compressed, chosen": (
        Compressed(
            compress=3, window=2, overlap=True, entries_per_query=6, index_dim=5
        ),
        USUAL,
    ),
    "latent": (Latent(latent_dim=7), USUAL),
    "delta": (DeltaRule(), replace(USUAL, bias=False)),
}

# Settings that have one value only in these and their defaults get another one here.
OTHER_VALUES: tuple[Attention, ...] = (
    ChosenKeys(index_heads=3),
    ChosenKeys(dense=True),
    ChosenKeys(fp8=True),
    ChosenBlocks(num_chosen=2),
    Compressed(entries_per_query=2, index_heads=3),
)


def of(*names: str) -> pytest.MarkDecorator:
    """Run a test with these layers."""
    return pytest.mark.parametrize("name", names)


every = of(*LAYERS)
with_scores = of(
    *(name for name, (attention, _) in LAYERS.items() if attention.has_scores)
)
without_scores = of(
    *(name for name, (attention, _) in LAYERS.items() if not attention.has_scores)
)
that_read_padding = of(
    *(name for name, (attention, _) in LAYERS.items() if attention.reads_padding)
)
that_share_keys = of(
    *(
        name
        for name, (attention, _) in LAYERS.items()
        if "num_kv_heads" not in attention.unsupported
    )
)
with_windows = of(
    *(
        name
        for name, (attention, _) in LAYERS.items()
        if "windows" not in attention.unsupported
    )
)


def make_layer(name: str, **changes: Any) -> AttentionLayer[Any]:
    """Return a layer whose weights are large enough for it to have an opinion."""
    attention, settings = LAYERS[name]
    layer = attention.make(replace(settings, **changes))
    assert isinstance(layer, nn.Module)
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.6, generator=generator)
    return layer


def rotary_of(name: str, start: int = 0, length: int = T) -> Tensor | None:
    """Return a table of positions, if the layer has scores."""
    if not LAYERS[name][0].has_scores:
        return None
    return rotary_table(torch.arange(start, start + length), D_K).double()


def some(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@every
def test_it_is_a_layer_of_its_settings_and_they_have_a_name(name: str) -> None:
    attention, settings = LAYERS[name]
    layer = make_layer(name)
    assert isinstance(attention, Attention)
    assert isinstance(layer, AttentionLayer)
    assert isinstance(layer.o_proj, nn.Linear)
    assert (layer.num_heads, layer.head_dim) == (settings.num_heads, D_K)
    assert attention_named(*name_of(attention)) == attention
    assert len({attention, replace(attention)}) == 1


def test_every_setting_of_an_attention_reaches_its_layer() -> None:
    """Each is changed alone, to the values that it has above."""
    x, arrived = some(B, T, D), set[tuple[type, str]]()
    attentions = {attention for attention, _ in LAYERS.values()}
    attentions |= {*ATTENTIONS.values()}
    for one, other in itertools.product(attentions, {*attentions, *OTHER_VALUES}):
        for setting in fields(one) if type(one) is type(other) else ():
            value = getattr(other, setting.name)
            if value == getattr(one, setting.name):
                continue
            try:
                changed = replace(one, **{setting.name: value})
            except ValueError:  # it does not fit the others
                continue
            torch.manual_seed(0)  # in any order of the pairs, and of tests
            layer, twin = one.make(USUAL), changed.make(USUAL)
            arrived.add((type(one), setting.name))
            try:
                twin.load_state_dict(layer.state_dict())
            except RuntimeError:  # they have other parameters
                continue
            same = torch.allclose(layer(x, causal=True), twin(x, causal=True))
            message = f"{one} ignores {setting.name}={value}: pass it on, or refuse it"
            assert not same, message
    for kind in {type(attention) for attention in attentions}:
        unchanged = {field.name for field in fields(kind)} - {
            name for owner, name in arrived if owner is kind
        }
        message = f"{kind.__name__}: give {unchanged} another value in OTHER_VALUES"
        assert not unchanged, message


@every
def test_its_projections_have_a_bias_if_the_settings_say_so(name: str) -> None:
    attention, settings = LAYERS[name]
    biased, bare = (
        {n for n, _ in attention.make(replace(settings, bias=bias)).named_parameters()}
        for bias in (True, False)
    )
    assert bare < biased
    assert "o_proj.bias" in biased - bare
    assert not {f"{name}_proj.bias" for name in "qkvo"} & bare


@every
def test_its_parameters_are_where_and_of_the_type_that_the_settings_say(
    name: str,
) -> None:
    attention, settings = LAYERS[name]
    asked = replace(settings, device=torch.device("meta"), dtype=torch.float16)
    layer = attention.make(asked)
    assert isinstance(layer, nn.Module)
    at = {(p.device.type, p.dtype) for p in layer.parameters()}
    assert at == {("meta", torch.float16)}


@every
def test_muon_takes_its_maps_and_no_vectors_in_rows(name: str) -> None:
    layer = nn.ModuleDict({"it": make_layer(name), "embedding": nn.Embedding(2, 3)})
    maps = {m.weight for m in layer.modules() if isinstance(m, nn.Linear)}
    _, muon = make_optimizers(layer, Recipe(optimizer="muon"))
    others = {*muon.param_groups[0]["params"]} - maps
    names = [name for name, p in layer.named_parameters() if p in others]
    assert names == [], "are the rows of these vectors? Then they belong in row_vectors"


@every
def test_its_settings_say_whether_a_cache_holds_its_heads(name: str) -> None:
    attention, settings = LAYERS[name]
    keys = make_layer(name).new_cache(B, T).nbytes
    of_heads = B * T * settings.num_kv_heads * 2 * D_K * 8
    assert attention.keeps_heads == (keys == of_heads)


@every
def test_no_output_depends_on_a_later_position_or_another_sequence(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D).requires_grad_()
    output = layer(x, causal=True, rotary=rotary_of(name))
    assert output.shape == (B, T, D)
    for t in (0, 8, 17):
        (slope,) = torch.autograd.grad(
            output[1, t].square().sum(), x, retain_graph=True
        )
        assert not slope[0].any()
        assert not slope[1, t + 1 :].any()
        assert slope[1, t].any()
        assert slope[1, 0].any()


@with_scores
def test_with_its_weights_it_returns_the_same_outputs_and_gradients(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D).requires_grad_()
    learned = [p for n, p in layer.named_parameters() if "indexer" not in n]
    output = layer(x, causal=True, rotary=rotary_of(name))
    again, weights = layer(x, causal=True, rotary=rotary_of(name), return_weights=True)
    assert_alike(again, output, [x, *learned], close=1e-10)
    unfused = make_layer(name, fused=False)(x, causal=True, rotary=rotary_of(name))
    torch.testing.assert_close(unfused, output, rtol=1e-10, atol=1e-11)
    heads = H if LAYERS[name][0].weighs_by_head else H // 2
    assert weights.shape == (B, heads, T, T)
    assert not weights.triu(1).any()


@with_scores
def test_in_the_open_it_calls_no_fused_kernel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(F, "scaled_dot_product_attention")
    make_layer(name, fused=False)(some(B, T, D), causal=True)


PIECES = ([1] * T, [7, 1, 1, 13, 15], [T - 1, 1], [2, T - 2])


@every
@torch.no_grad()
def test_in_pieces_it_reads_what_it_reads_at_once(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D)
    full_output = layer(x, causal=True, rotary=rotary_of(name))
    cache = layer.new_cache(B, T)
    for pieces in PIECES:  # again, when it has forgotten
        outputs: list[Tensor] = []
        for piece in x.split(pieces, dim=1):
            rotary = rotary_of(name, cache.length, piece.shape[1])
            outputs.append(layer(piece, causal=True, rotary=rotary, cache=cache))
        read = torch.cat(outputs, dim=1)
        torch.testing.assert_close(read, full_output, rtol=1e-9, atol=1e-10)
        assert cache.length == T
        cache.reset()


@every
@pytest.mark.parametrize("pieces", [[7, 1, 1, 1, 1], [2] * 5])
@torch.no_grad()
def test_its_cache_goes_back_as_if_it_had_read_no_further(
    name: str, pieces: list[int]
) -> None:
    """To all lengths that the cache says it can; others it refuses, and goes on."""
    layer, past = make_layer(name), sum(pieces)
    text, other = some(B, past, D), -some(B, past + 5, D)

    def read(cache: Cache, *parts: Tensor) -> Tensor:
        rotaries = (rotary_of(name, cache.length, part.shape[1]) for part in parts)
        outputs = [
            layer(part, causal=True, rotary=rotary, cache=cache)
            for part, rotary in zip(parts, rotaries, strict=True)
        ]
        return torch.cat(outputs, dim=1)

    for length in range(-1, past + 2):
        cache = layer.new_cache(B, T)
        if isinstance(cache, StateCache):
            cache.slack = 3
        read(cache, *text.split(pieces, dim=1))
        assert (cache.batch_size, cache.nbytes > 0) == (B, True)
        assert cache.earliest < cache.length
        if length == 0 or cache.earliest <= length <= past:
            cache.rewind(length)
            kept = length
        else:
            with pytest.raises(ValueError, match=f"it cannot go back to {length}"):
                cache.rewind(length)
            kept = past
        assert cache.length == kept
        new = other[:, kept : kept + 5]
        output = read(cache, *new.split([3, 2], dim=1))
        full = torch.cat([text[:, :kept], new], dim=1)
        expected = layer(full, causal=True, rotary=rotary_of(name, 0, kept + 5))
        torch.testing.assert_close(output, expected[:, kept:], rtol=1e-9, atol=1e-10)


@that_share_keys
@pytest.mark.parametrize("fused", [True, False])
def test_neighboring_heads_share_keys_and_values(name: str, fused: bool) -> None:
    shared, x = make_layer(name, num_kv_heads=2, fused=fused), some(B, T, D)
    own = make_layer(name, num_kv_heads=H, fused=fused)
    weights = shared.state_dict()
    for key, rows in own.state_dict().items():
        if weights[key].shape != rows.shape:  # of keys or values: a copy for each head
            heads = weights[key].unflatten(0, (2, D_K))
            weights[key] = heads.repeat_interleave(H // 2, dim=0).flatten(0, 1)
    own.load_state_dict(weights)
    output = shared(x, causal=True, rotary=rotary_of(name))
    expected = own(x, causal=True, rotary=rotary_of(name))
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-10)


@with_scores
def test_with_rotary_positions_only_distances_matter(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D)
    expected = layer(x, causal=True, rotary=rotary_of(name))
    shifted = layer(x, causal=True, rotary=rotary_of(name, start=1000))
    torch.testing.assert_close(shifted, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(layer(x, causal=True), expected, rtol=1e-2, atol=1e-2)


@that_read_padding
@pytest.mark.parametrize("fused", [True, False])
def test_padding_on_the_left_changes_nothing(name: str, fused: bool) -> None:
    layer, x = make_layer(name, fused=fused), some(B, T, D).requires_grad_()
    padded = torch.cat([9 * some(B, 3, D), x], dim=1)
    real = torch.ones(B, T + 3, dtype=torch.bool)
    real[:, :3] = False
    positions = torch.arange(-3, T).clamp(min=0)
    rotary = rotary_of(name)
    expected = layer(x, causal=True, rotary=rotary)
    if rotary is not None:
        rotary = rotary_table(positions, D_K).double()
    output = layer(padded, mask=token_mask(real), causal=True, rotary=rotary)[:, 3:]
    assert_alike(output, expected, [x], close=1e-10)


@with_windows
def test_a_window_is_its_mask(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D)
    mask = sliding_window_mask(T, window=5)
    output = layer(x, causal=True, window=5, rotary=rotary_of(name))
    expected = layer(x, causal=True, mask=mask, rotary=rotary_of(name))
    torch.testing.assert_close(output, expected)
    assert not torch.allclose(output, layer(x, causal=True, rotary=rotary_of(name)))


@without_scores
def test_without_scores_it_refuses_what_acts_on_them(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D)
    for option, value in {
        "window": 3,
        "score_bias": some(T, T),
        "rotary": rotary_table(torch.arange(T), D_K),
        "return_weights": True,
    }.items():
        with pytest.raises(ValueError, match=f"^{option} "):
            layer(x, causal=True, **{option: value})
    for shape in ((T, T), (B, H, 1, T), (B, 1, T, T), (B, 1, 1, T + 1)):
        with pytest.raises(ValueError, match=r"^mask "):
            layer(x, causal=True, mask=torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^causal"):
        layer(x, causal=False)


@every
def test_its_state_dict_makes_another_layer_compute_the_same(name: str) -> None:
    layer, x = make_layer(name), some(B, T, D)
    attention, settings = LAYERS[name]
    twin = attention.make(settings)
    expected = layer(x, causal=True, rotary=rotary_of(name))
    assert not torch.allclose(twin(x, causal=True, rotary=rotary_of(name)), expected)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x, causal=True, rotary=rotary_of(name)), expected)


@every
def test_its_output_is_that_of_o_proj(name: str) -> None:
    layer, x, outputs = make_layer(name), some(B, T, D), list[Tensor]()
    layer.o_proj.register_forward_hook(lambda *io: outputs.append(io[2]))
    output = layer(x, causal=True, rotary=rotary_of(name))
    assert len(outputs) == 1
    assert torch.equal(outputs[0], output)


@with_scores
@pytest.mark.parametrize("fused", [True, False])
def test_a_bias_of_minus_infinity_forbids_as_a_mask_does(
    name: str, fused: bool
) -> None:
    layer, x = make_layer(name, fused=fused), some(B, T, D).requires_grad_()
    allowed = torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(1)) < 0.5
    allowed[:, :, 2] = False  # and so it sees nothing
    bias = torch.zeros(allowed.shape).double().masked_fill(~allowed, -torch.inf)
    output = layer(x, causal=True, score_bias=bias)
    expected = layer(x, causal=True, mask=allowed)
    assert_alike(output, expected, [x])
    _, weights = layer(x, causal=True, score_bias=bias, return_weights=True)
    assert weights.isfinite().all()
    assert not weights[:, :, 2].any()


@with_scores
def test_dropout_drops_weights_while_it_trains(name: str) -> None:
    attention, settings = LAYERS[name]
    x = some(B, T, D)
    for fused, bias in itertools.product((True, False), (None, some(T, T))):
        how = {"causal": True, "rotary": rotary_of(name), "score_bias": bias}
        dropped = attention.make(replace(settings, dropout=0.3, fused=fused))
        dropped.load_state_dict(make_layer(name).state_dict())
        expected = make_layer(name)(x, **how)
        assert not torch.allclose(dropped(x, **how), expected)
        torch.testing.assert_close(dropped.eval()(x, **how), expected)
