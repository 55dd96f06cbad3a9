"""Compressed keys: DeepSeek-V4's layers, open = in windows, and a cache of entries."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attentions import (
    Compressed,
    CompressedAttention,
    adjusted_attention_with_weights,
    attention_in_windows,
    choose_keys,
    compressed,
    entries_past,
    seen_in_windows,
)
from tested_transformer.checking import check_attention
from tested_transformer.masks import sliding_window_mask
from tested_transformer.positions import rotary_table

# Pairwise different: batch, heads, tokens, widths of the sequence, of a head and of
# what positions turn; window, heads of the indexer, their width, and chosen entries.
B, H, T, D, D_K, R, W, H_I, D_I, CHOSEN = 2, 6, 37, 22, 8, 4, 5, 7, 9, 3
BASE = 160.0
HEAVY = Compressed(compress=4, window=W)
SPARSE = Compressed(
    compress=3,
    window=W,
    overlap=True,
    entries_per_query=CHOSEN,
    index_heads=H_I,
    index_dim=D_I,
)
both = pytest.mark.parametrize("settings", [HEAVY, SPARSE], ids=["heavy", "sparse"])
PIECES = ([1] * T, [7, 1, 1, 13, 15], [T - 1, 1], [2, T - 2])


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make_layer(settings: Compressed, **changes: Any) -> CompressedAttention:
    sizes: dict[str, Any] = {"d_model": D, "num_heads": H}
    sizes |= {"head_dim": D_K, "rotary_dim": R}
    sizes |= {"dtype": torch.float64} | changes
    return with_large_weights(CompressedAttention(settings, **sizes), 0.6)


def table(start: int = 0, length: int = T) -> Tensor:
    return rotary_table(torch.arange(start, start + length), R, base=BASE)


def deepseeks(settings: Compressed) -> tuple[Any, Any]:
    """Return DeepSeek-V4's attention in ``transformers``, and its configuration."""
    from transformers import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
        DeepseekV4Attention,
    )

    sparse = settings.entries_per_query is not None
    kinds = ["heavily_compressed_attention", "compressed_sparse_attention"]
    config = DeepseekV4Config(
        hidden_size=D,
        num_attention_heads=H,
        head_dim=D_K,
        q_lora_rank=10,
        o_groups=3,
        o_lora_rank=11,
        index_n_heads=H_I,
        index_head_dim=D_I,
        index_topk=CHOSEN,
        sliding_window=W,
        num_hidden_layers=1,
        layer_types=[kinds[sparse]],
        mlp_layer_types=["moe"],
        compress_rates=dict.fromkeys(kinds, settings.compress),
        compress_rope_theta=BASE,
        partial_rotary_factor=R / D_K,
        attn_implementation="eager",
    )
    return with_large_weights(DeepseekV4Attention(config, layer_idx=0), 0.6), config


class GroupedOutput(nn.Module):
    """Their projection to the output, which is no single matrix."""

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self.first, self.second = theirs.o_a_proj, theirs.o_b_proj

    def forward(self, heads: Tensor) -> Tensor:
        return self.second(self.first(heads.unflatten(-1, (3, -1))).flatten(2))


def with_their_weights(theirs: Any, settings: Compressed) -> CompressedAttention:
    """Return a layer that has the very parameters of theirs."""
    ours = make_layer(settings, dtype=torch.float32)
    latent = theirs.q_a_proj, theirs.q_a_norm
    ours.q_proj = nn.Sequential(*latent, theirs.q_b_proj)
    ours.kv_proj.weight = theirs.kv_proj.weight
    ours.kv_norm.weight = theirs.kv_norm.weight
    ours.sink, ours.o_proj = theirs.sinks, GroupedOutput(theirs)
    pairs = [(ours.compressor, theirs.compressor)]
    if ours.indexer is not None:
        pairs.append((ours.indexer.compressor, theirs.compressor.indexer))
        ours.indexer.q_proj = nn.Sequential(*latent, theirs.compressor.indexer.q_b_proj)
        scorer = theirs.compressor.indexer.scorer
        ours.indexer.weight_proj.weight = scorer.weights_proj.weight
    for target, source in pairs:
        target.kv_proj.weight = source.kv_proj.weight
        target.gate_proj.weight = source.gate_proj.weight
        target.norm.weight = source.kv_norm.weight
        target.position_bias = source.position_bias
    assert {*map(id, ours.parameters())} == {*map(id, theirs.parameters())}
    return ours


def called(theirs: Any, config: Any, x: Tensor, cache: Any = None) -> Tensor:
    """Call their layer as their model does."""
    start = 0 if cache is None else cache.get_seq_length()
    positions = torch.arange(start, start + x.shape[1]).expand(len(x), -1)
    seen = sliding_window_mask(x.shape[1], min(start, W - 1) + x.shape[1], window=W)
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    mask = mask.expand(len(x), 1, -1, -1)
    angles = theirs.compressor.rotary_emb(x, positions, layer_type="compress")
    return theirs(x, {"compress": angles}, positions, mask, past_key_values=cache)[0]


@both
@pytest.mark.parametrize("training", [True, False])
def test_a_whole_layer_is_deepseeks_in_outputs_and_gradients(
    settings: Compressed, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(compressed, "_ROWS", 8)
    theirs, config = deepseeks(settings)
    ours = with_their_weights(theirs, settings).train(training)
    x = torch.randn(B, T, D, requires_grad=True)
    output, expected = ours(x, rotary=table()), called(theirs, config, x)
    assert_alike(output, expected, [x, *theirs.parameters()], close=1e-4)


@both
def test_a_bias_is_added_to_queries_keys_and_outputs_alone(settings: Compressed):
    without, biased = (
        {name for name, _ in make_layer(settings, bias=bias).named_parameters()}
        for bias in (False, True)
    )
    assert not any(name.endswith(".bias") for name in without)
    assert biased - without == {"q_proj.bias", "kv_proj.bias", "o_proj.bias"}


@both
@torch.no_grad()
def test_with_its_cache_deepseeks_reads_pieces_alike(settings: Compressed) -> None:
    from transformers import DynamicCache

    torch.manual_seed(0)
    theirs, config = deepseeks(settings)
    ours, x = with_their_weights(theirs, settings).eval(), torch.randn(B, T, D)
    for pieces in PIECES:
        cache, theirs_cache = ours.new_cache(B, T), DynamicCache(config=config)
        for piece in x.split(pieces, dim=1):
            expected = called(theirs, config, piece, theirs_cache)
            turns = table(cache.length, piece.shape[1])
            output = ours(piece, causal=True, rotary=turns, cache=cache)
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
        kept = theirs_cache.layers[0].compressed_kv["compressor"]
        entries = cache.entries.keys[:, 0, : cache.entries.length]
        torch.testing.assert_close(entries, kept, rtol=1e-4, atol=1e-4)


@both
def test_in_windows_is_in_the_open_in_outputs_and_gradients(
    settings: Compressed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one block of queries, with several, and with copies for each query."""
    length, num_entries, most = 11, 29, settings.entries_per_query
    tokens, entries, sink = (
        rand(B, 1, length + 3, D_K),
        rand(B, 1, num_entries, D_K),
        rand(H),
    )
    for rows, num_queries in ((4, length), (length, length), (4, 9), (128, 1)):
        monkeypatch.setattr(compressed, "_ROWS", rows)
        q = rand(B, H, num_queries, D_K)
        readable = entries_past(num_queries, num_entries, compress=3, first=58)
        if most is not None:
            scores = rand(B, num_queries, num_entries).masked_fill(
                ~readable, -torch.inf
            )
            scores[0, 0, 2:] = -torch.inf  # fewer than could be read
            readable = choose_keys(scores, most)[:, None]
        inputs = [tensor.requires_grad_() for tensor in (q, tokens, entries, sink)]
        how: dict[str, Any] = {"window": W, "entries_per_query": most}
        output = attention_in_windows(*inputs, readable, **how)
        keys = torch.cat([tokens, entries], dim=2)
        seen = seen_in_windows(tokens.shape[2], readable, window=W)
        expected, _ = adjusted_attention_with_weights(
            q, keys, keys, sink=sink, mask=seen
        )
        assert_alike(output, expected, inputs)


def test_no_table_of_all_tokens_is_made() -> None:
    """The scores are those of a window and of entries, for each query."""
    sizes: list[int] = []

    def counted(q: Tensor, k: Tensor, v: Tensor, *args: Any, **options: Any) -> Tensor:
        sizes.append(q.shape[0] * q.shape[2] * k.shape[2])
        return fused(q, k, v, *args, **options)

    fused = compressed.fused_attention_with_sink
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed, "fused_attention_with_sink", counted)
        layer = make_layer(Compressed(compress=8, window=16), dtype=torch.float32)
        layer(torch.randn(1, 1024, D))
        layer = make_layer(replace(SPARSE, compress=4)).eval()
        cache = layer.new_cache(1, 200)
        layer(rand(1, 199, D), cache=cache)
        layer(rand(1, 1, D), cache=cache)
    assert sizes[0] == 1024 * (128 + 15 + 1024 // 8)
    assert sizes[2] == W + CHOSEN


@both
def test_it_is_what_it_is_checked_against(settings: Compressed) -> None:
    report = check_attention(make_layer(settings).eval())
    assert report.state == "right", str(report)


@both
def test_the_weight_of_an_entry_stands_at_its_last_token(settings: Compressed) -> None:
    layer, x = make_layer(settings), rand(B, T, D)
    _, weights = layer(x, return_weights=True)
    size, chosen = settings.compress, settings.entries_per_query
    cache = layer.new_cache(B, T)
    layer(x[:, : T - 2], cache=cache)
    _, last = layer(x[:, T - 2 :], cache=cache, return_weights=True)
    torch.testing.assert_close(last, weights[:, :, T - 2 :])
    # Beyond the window, only entries are left.
    for t in (T - 1, 20):
        beyond = weights[:, :, t, : t - W + 1]
        places = torch.arange(t - W + 1) % size == size - 1
        assert not beyond[..., ~places].any()
        read = (beyond > 0).sum(dim=-1)
        all_read = read == places.sum() if chosen is None else read <= chosen
        assert all_read.all()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_what_a_mask_hides_no_entry_tells(overlap: bool, fused: bool) -> None:
    layer, x = make_layer(replace(HEAVY, overlap=overlap), fused=fused), rand(B, T, D)
    mask = torch.ones(T, T, dtype=torch.bool)
    mask[:, 9] = False  # in the third entry, and with overlap in the fourth
    changed = x.clone()
    changed[:, 9] = rand(B, D)
    output, expected = (layer(tokens, mask=mask) for tokens in (changed, x))
    rest = torch.arange(T) != 9
    assert torch.equal(output[:, rest], expected[:, rest])
    assert not torch.allclose(layer(changed)[:, -1], layer(x)[:, -1])
    weights = layer(x, mask=mask, return_weights=True)[1][:, :, -1, 3::4]
    hidden = {2, 3} if overlap else {2}
    assert {
        *(weights == 0).all(dim=0).all(dim=0).nonzero().flatten().tolist()
    } == hidden


@both
@torch.no_grad()
def test_a_cache_keeps_entries_and_can_go_back(settings: Compressed) -> None:
    layer, x = make_layer(settings).eval(), rand(B, T, D)
    full_output = layer(x, rotary=table())
    for length in range(T + 1):
        cache = layer.new_cache(B, T)
        layer(x[:, :30], rotary=table(length=30), cache=cache)
        layer(rand(B, 3, D), rotary=table(30, 3), cache=cache)  # to be taken back
        assert (cache.length, cache.batch_size) == (33, B)
        assert 30 <= cache.length - 3 >= cache.earliest
        if length > 33 or 0 < length < cache.earliest:
            with pytest.raises(ValueError, match=f"it cannot go back to {length}"):
                cache.rewind(length)
            length = 30
        if length > 30:
            continue
        cache.rewind(length)
        assert cache.entries.length == length // settings.compress
        rest = layer(x[:, length:], rotary=table(length, T - length), cache=cache)
        torch.testing.assert_close(rest, full_output[:, length:])
        with pytest.raises(ValueError, match=f"holds {T} of at most {T} tokens"):
            layer(x[:, :1], cache=cache)
        cache.reset()
        assert (cache.length, cache.entries.length, cache.earliest) == (0, 0, 0)


def test_the_bytes_of_a_cache_are_what_is_kept() -> None:
    longest = 1000
    room = 2 * 4  # the slack, once for new tokens and once for those taken back
    for settings in (HEAVY, SPARSE, replace(SPARSE, compress=16, window=64)):
        m, both_, index = settings.compress, 1 + settings.overlap, 0
        if settings.entries_per_query:
            index = D_I
        cache = make_layer(settings).new_cache(B, longest)
        numbers = {
            "window": (settings.window - 1 + room) * D_K,
            "not an entry yet": (both_ * m - 1 + room)
            * (2 * both_ * (D_K + index) + R),
            "entries": longest // m * (D_K + index),
        }
        assert cache.nbytes == B * 8 * sum(numbers.values())
    half = make_layer(HEAVY, dtype=torch.bfloat16).new_cache(B, longest)
    assert 4 * half.nbytes == make_layer(HEAVY).new_cache(B, longest).nbytes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"rotary": table()[..., :1]}, "rotary must be a table for rotary_dim=4 or mo"),
        ({"causal": False}, "causal=False is refused: "),
        ({"window": 3}, "window=3 is refused: the lay"),
        (
            {"cache": make_layer(HEAVY).new_cache(B, T).entries},
            "cache must come from ",
        ),
        ({"mask": torch.ones(T, T + 1).bool()}, "mask"),
    ],
)
def test_a_call_that_does_not_fit_is_named(call: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_layer(HEAVY)(rand(B, T, D), **call)


def test_settings_that_do_not_fit_are_named() -> None:
    for name in ("compress", "window", "entries_per_query", "index_heads", "index_dim"):
        with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
            Compressed(**{name: 0})
    for name in ("index_heads", "index_dim"):
        with pytest.raises(ValueError, match=f"^{name}=5 needs entries_per_query: it "):
            Compressed(**{name: 5})
    with pytest.raises(ValueError, match="rotary_dim=3 must be even"):
        make_layer(HEAVY, rotary_dim=3)
    with pytest.raises(ValueError, match="rotary_dim=10 must lie between 0 and head_d"):
        make_layer(HEAVY, rotary_dim=10)
