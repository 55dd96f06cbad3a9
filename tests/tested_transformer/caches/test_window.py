"""A layer with a window keeps only what the window sees, and computes the same."""

import re
from typing import Any

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attentions import AdjustedSoftmax, Differential, Latent
from tested_transformer.cache import (
    DenseCache,
    KVCache,
    WindowCache,
    dense_layers,
    window_room,
)
from tested_transformer.caches import (
    PagedCache,
    PagePool,
    quantized_cache,
    rolling_cache,
)
from tested_transformer.decoding import (
    HeadDrafter,
    ModelDrafter,
    MultiTokenGPT,
    Sampling,
    TextReader,
    WholeReader,
    generate,
    speculate,
)
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: batch, layers, heads, groups, text, longest text, head width.
B, L, H, H_KV, T, LONGEST, D_K, V = 3, 5, 4, 2, 31, 37, 6, 11
WINDOWS = (5, None, 9, 1, LONGEST - 1)
WINDOW, SLACK, ROOM = 5, 4, 12  # of the first layer
KINDS: dict[str, dict[str, Any]] = {
    "learned": {"positions": "learned", "smear": True},
    "rotary, groups": {"positions": "rotary", "num_kv_heads": H_KV, "qk_norm": True},
    "alibi": {"positions": "alibi", "num_kv_heads": H_KV},
    "sinusoidal, open": {"positions": "sinusoidal", "fused": False},
    "sinks": {"attention": AdjustedSoftmax(learned_sink=True), "positions": "rotary"},
    "differential": {"attention": Differential(), "positions": "rotary"},
    "latent": {"attention": Latent(), "positions": "rotary"},
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=[*KINDS])


def make(**changes: Any) -> GPT:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"vocab_size": V, "num_layers": L}
    settings |= {"d_model": H * D_K, "num_heads": H}
    settings |= {"max_seq_len": LONGEST, "windows": WINDOWS, "positions": "rotary"}
    model = with_large_weights(GPT(GPTConfig(**(settings | changes))).double())
    return model.eval().requires_grad_(False)


def read(model: GPT, tokens: Tensor, parts: list[int], cache: KVCache) -> Tensor:
    pieces = tokens.split(parts, dim=1)
    return torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)


@each_kind
def test_a_text_cut_anywhere_is_read_as_a_whole(kind: dict[str, Any]) -> None:
    model, tokens = make(**kind), torch.randint(V, (B, T))
    full_logits, cache = model(tokens), model.new_cache(B)
    cuts = [[cut, T - cut] for cut in (1, WINDOW, ROOM, ROOM + 1, T - 1)]
    for parts in [*cuts, [1] * T, [ROOM, 1, 7, 1, 10], [2, 13, 1, 1, 14]]:
        cache.reset()
        torch.testing.assert_close(read(model, tokens, parts, cache), full_logits)
        assert cache.length == T


@each_kind
def test_padding_and_weights_are_those_of_a_whole_reading(kind: dict[str, Any]) -> None:
    model, tokens = make(**kind), torch.randint(V, (B, T))
    padding = torch.tensor([0, 13, 4])
    positions = torch.arange(T) - padding[:, None]
    mask, positions = (positions >= 0)[:, None, None], positions.clamp(min=0)
    full_logits, maps = model(
        tokens, positions=positions, mask=mask, return_weights=True
    )
    cache, end = model.new_cache(B), 0
    for length in (6, 10, *[1] * 15):
        now, end = slice(end, end + length), end + length
        logits, weights = model(
            tokens[:, now],
            positions=positions[:, now],
            mask=mask[..., :end],
            cache=cache,
            return_weights=True,
        )
        real = (positions[:, now] > 0) | (padding == 0)[:, None]
        torch.testing.assert_close(logits[real], full_logits[:, now][real])
        for layer_weights, expected in zip(weights, maps, strict=True):
            torch.testing.assert_close(layer_weights, expected[:, :, now, :end])
    # A mask of queries and keys, which also hides every third key from later queries.
    table = torch.ones(T, T, dtype=torch.bool)
    table[:, ::3] = torch.eye(T, dtype=torch.bool)[:, ::3]
    cache.reset()
    for start in range(0, T, 4):
        end = min(start + 4, T)
        logits = model(tokens[:, start:end], mask=table[start:end, :end], cache=cache)
        torch.testing.assert_close(logits, model(tokens, mask=table)[:, start:end])


def test_its_bytes_follow_the_windows() -> None:
    """Room for the tokens before, and twice the slack, unless all tokens need less."""
    kept = [4 + 8, LONGEST, 8 + 8, 0 + 8, LONGEST]
    for num_kv_heads in (H, H_KV):
        cache = make(num_kv_heads=num_kv_heads).float().new_cache(B)
        sizes = [2 * B * num_kv_heads * room * D_K * 4 for room in kept]
        assert [layer.nbytes for layer in cache.layers] == sizes
        assert cache.nbytes == sum(sizes)
        kinds = [type(layer) for layer in cache.layers]
        assert kinds == [
            DenseCache if room == LONGEST else WindowCache for room in kept
        ]
    assert (window_room(128), window_room(4096)) == (127 + 2 * 8, 4095 + 2 * 256)
    # With room for all tokens, and where keys are not those of heads, all are kept.
    assert len(dense_layers(make(windows=5).new_cache(max_length=ROOM))) == L
    assert len(dense_layers(make(attention=Latent()).new_cache())) == L


def test_a_step_moves_memory_only_when_it_is_full() -> None:
    cache = new_layer()
    where, moves = cache.memory.keys.data_ptr(), []
    for step in range(ROOM + 5 * SLACK + 1):
        keys, _ = cache.append(*torch.rand(2, B, H, 1, D_K))
        assert keys.shape[2] == min(step + 1, WINDOW)
        if keys.untyped_storage().data_ptr() != where:
            moves.append(step)
    assert cache.memory.keys.data_ptr() == where
    assert moves == [*range(ROOM, ROOM + 5 * SLACK + 1, SLACK + 1)]


def new_layer() -> WindowCache:
    memory = torch.full((2, B, H, ROOM, D_K), torch.nan)
    return WindowCache(DenseCache(*memory), window=WINDOW, max_length=100)


def test_another_window_is_refused() -> None:
    layer = make().blocks[0].attention
    x = torch.rand(1, 2, H * D_K).double()
    for window in (None, 6):
        message = f"^the cache keeps what a window of 5 sees; window={window}$"
        cache = make().new_cache().layers[0]
        with pytest.raises(ValueError, match=message):
            layer(x, window=window, cache=cache)
        assert cache.length == 0
    cache = make().new_cache().layers[0]
    smaller = layer(x, window=1, cache=cache)
    torch.testing.assert_close(smaller, layer(x, window=1))


def test_a_mask_that_does_not_cover_all_keys_is_refused() -> None:
    model, tokens = make(), torch.randint(V, (B, T))
    for size in (WINDOW, T - 1, T + 1):
        cache = model.new_cache(B)
        model(tokens[:, :-1], cache=cache)
        mask = torch.ones(B, 1, 1, size, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"^mask is "):
            model(tokens[:, -1:], mask=mask, cache=cache)


def test_other_caches_read_such_a_model_or_say_why_not() -> None:
    model, tokens = make(), torch.randint(V, (1, T))
    full_logits = model(tokens)
    paged = PagedCache(PagePool.for_model(model, num_pages=10, page_size=4))
    torch.testing.assert_close(read(model, tokens, [20, *[1] * 11], paged), full_logits)
    kept = quantized_cache(model, bits=8, group_size=LONGEST)
    torch.testing.assert_close(read(model, tokens, [20, *[1] * 11], kept), full_logits)
    with pytest.raises(ValueError, match=re.escape(f"windows={WINDOWS} of model ")):
        rolling_cache(model, sinks=2, window=7)
    wide = make(windows=LONGEST)
    rolling = rolling_cache(wide, sinks=2, window=LONGEST - 2)
    torch.testing.assert_close(read(wide, tokens, [T - 1, 1], rolling), wide(tokens))


@pytest.mark.parametrize("num_drafted", [SLACK, SLACK + 3])
def test_drafts_are_taken_back_even_beyond_the_slack(num_drafted: int) -> None:
    model, greedy = make(tie_head=False), Sampling(temperature=0.0)
    prompt = [3, 1, 4, 1, 5, 3, 1]
    heads = MultiTokenGPT(model, num_tokens=num_drafted + 1).double().eval()
    for parameter in heads.get_submodule("further").parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    (expected,) = generate(
        WholeReader(model), [prompt], max_new_tokens=30, sampling=greedy
    )
    for drafter in (
        ModelDrafter(
            make(num_layers=2, windows=3, tie_head=False),
            probabilities=greedy.probabilities,
        ),
        HeadDrafter(heads, probabilities=greedy.probabilities),
    ):
        read_at_once: list[int] = []

        def count(_: nn.Module, inputs: Any, kept: list[int] = read_at_once) -> None:
            kept.append(inputs[0].shape[1])

        hook = model.blocks[0].register_forward_pre_hook(count)
        written = speculate(
            model,
            prompt,
            drafter,
            max_new_tokens=30,
            num_drafted=num_drafted,
            probabilities=greedy.probabilities,
        )
        hook.remove()
        assert written.tokens == expected
        assert sum(written.accepted) < sum(written.drafted)  # some were taken back
        # Within the slack, nothing is read twice but for what took the place of drafts.
        assert (max(read_at_once[1:]) > num_drafted + 1) == (num_drafted > SLACK)


def test_a_text_reader_starts_again_where_the_window_is_gone() -> None:
    model = make()
    reader, text = TextReader(model), [*range(V)] * 3
    for changed in (text, text[:30], [*text[:20], 7], [*text[:2], *text[5:]], text[:1]):
        expected = model(torch.tensor([changed]))[0, -1:]
        torch.testing.assert_close(reader.read(changed, 1), expected)


@pytest.mark.usefixtures("as_a_caller")
def test_it_compiles() -> None:
    torch.compiler.reset()
    model, tokens = make(num_layers=1, windows=5), torch.randint(V, (B, 18))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    cache = model.new_cache(B)
    parts = [compiled(part, cache=cache) for part in tokens.split([16, 1, 1], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens))
    torch.compiler.reset()
