"""Chosen keys: the indexer is DeepSeek's, and gathered = masked, with gradients."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attention import attention_with_weights
from tested_transformer.attentions import (
    ChosenKeys,
    Compressed,
    CompressedAttention,
    Indexer,
    LatentAttention,
    attention_to_chosen,
    choose_keys,
    index_loss,
    index_scores,
    indexer,
    rounded_to_fp8,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.masks import causal_mask
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import rotary_table
from tested_transformer.training import Recipe, train

# Pairwise different: batch, heads, heads of keys, positions, widths of the sequence and
# of a head; heads of the indexer, their width, and how many keys are chosen.
B, H, H_KV, T, D, D_K = 2, 6, 3, 17, 11, 4
H_I, D_I, CHOSEN = 5, 9, 7
SIZES: dict[str, Any] = {"d_model": D, "num_heads": H, "head_dim": D_K}
KEYS = ChosenKeys(keys_per_query=CHOSEN, index_heads=H_I, index_dim=D_I)
ENTRIES = Compressed(
    compress=2, window=2, overlap=True, entries_per_query=4, index_heads=H_I
)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make_layer(core: Any = KEYS, **settings: Any) -> MultiHeadAttention:
    sizes = SIZES | {"num_kv_heads": H_KV, "dtype": torch.float64} | settings
    return with_large_weights(MultiHeadAttention(core=core, **sizes), 0.6)


def deepseeks() -> Any:
    """Return the attention of ``transformers``' DeepSeek-V3.2, with large weights."""
    from transformers import DeepseekV32Config
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import (
        DeepseekV32Attention,
    )

    config = DeepseekV32Config(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=10,
        kv_lora_rank=13,
        qk_rope_head_dim=6,
        qk_nope_head_dim=D_K,
        v_head_dim=8,
        index_n_heads=H_I,
        index_head_dim=D_I,
        index_topk=CHOSEN,
        attn_implementation="sdpa",
    )
    theirs = DeepseekV32Attention(config, layer_idx=0)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.6)
    return theirs


def test_a_whole_layer_is_deepseeks_with_the_same_weights() -> None:
    """Made of their own modules: the indexer's queries come from their latent, too."""
    torch.manual_seed(0)
    theirs = deepseeks()
    latent = theirs.q_a_proj, theirs.q_a_layernorm
    chooser = Indexer(d_model=D, num_heads=H_I, head_dim=D_I)
    chooser.q_proj = nn.Sequential(*latent, theirs.indexer.wq_b)
    chooser.k_proj, chooser.k_norm = theirs.indexer.wk, theirs.indexer.k_norm
    chooser.weight_proj = theirs.indexer.weights_proj
    layer = LatentAttention(
        d_model=D,
        num_heads=H,
        head_dim=D_K,
        rotary_dim=6,
        latent_dim=13,
        value_dim=8,
        query_latent_dim=10,
    )
    layer.q_proj = nn.Sequential(*latent, theirs.q_b_proj)
    layer.kv_down, layer.kv_norm = theirs.kv_a_proj_with_mqa, theirs.kv_a_layernorm
    layer.kv_up, layer.o_proj = theirs.kv_b_proj, theirs.o_proj
    assert {*layer.parameters(), *chooser.parameters()} == {*theirs.parameters()}
    table, past = rotary_table(torch.arange(T), 6), causal_mask(T)
    x = torch.randn(B, T, D, requires_grad=True)
    with torch.no_grad():
        scores = index_scores(
            chooser.queries(x, table), chooser.keys(x, table), chooser.weight_proj(x)
        )
        chosen = choose_keys(scores.masked_fill(~past, -torch.inf), CHOSEN)
    output = layer(x, causal=True, mask=chosen[:, None], rotary=table)
    cos_sin = tuple(torch.cat([half, half], dim=-1)[None] for half in table)
    expected, _ = theirs(x, cos_sin, past[None, None])
    assert_alike(output, expected, [x, *layer.parameters()], close=1e-4)
    without = layer(x, causal=True, rotary=table)
    assert not torch.allclose(without, expected, rtol=0.1, atol=0.1)


def test_a_score_is_a_weighted_sum_of_what_is_positive() -> None:
    q, k, weights = rand(B, H_I, T, D_I), rand(B, 13, D_I), rand(B, T, H_I)
    scores = index_scores(q, k, weights)
    for t, s in ((0, 0), (16, 12), (5, 9)):
        products = (q[1, :, t] @ k[1, s]).clamp(min=0.0)
        expected = (weights[1, t] * products).sum() / (H_I * D_I) ** 0.5
        torch.testing.assert_close(scores[1, t, s], expected)


def test_of_equal_scores_the_earliest_are_chosen() -> None:
    never = -torch.inf
    scores = torch.tensor(
        [
            [0.0, 2.0, 0.0, -1.0, 0.0, 3.0],
            [0.0, 0.0, 0.0, 0.0, never, never],
            [never, -2.0, never, never, never, never],
            [never] * 6,
        ]
    )
    expected = [[0, 1, 2, 5], [0, 1, 2, 3], [1], []]
    for keys in (scores, torch.cat([scores, scores[:, :2] + never], dim=-1)):
        chosen_keys = choose_keys(keys[None], 4)[0]
        assert [row.nonzero().flatten().tolist() for row in chosen_keys] == expected
    assert choose_keys(scores[None], 8).sum(dim=-1).tolist() == [[6, 4, 1, 0]]


def test_the_loss_is_the_divergence_from_what_attention_weighs() -> None:
    scores, read = rand(B, T, 13).requires_grad_(), torch.rand(B, T, 13) < 0.5
    read[:, 3] = False  # and so it sees nothing
    weights = rand(B, H, T, 13).masked_fill(~read[:, None], -torch.inf).softmax(dim=-1)
    weights = weights.nan_to_num(0.0).requires_grad_()
    loss = index_loss(scores, weights, read)
    expected, slopes = 0.0, torch.zeros(B, T, 13, dtype=torch.float64)
    for b in range(B):
        for t in (t for t in range(T) if t != 3):
            p = weights[b, :, t, read[b, t]].detach().mean(dim=0)
            q = scores[b, t, read[b, t]].detach().softmax(dim=-1)
            expected += float((p * (p / q).log()).sum()) / (B * T)
            slopes[b, t, read[b, t]] = (q - p) / (B * T)
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert weights.grad is None
    torch.testing.assert_close(scores.grad, slopes)
    same = weights.detach().mean(dim=1).log()
    assert float(index_loss(same, weights, read)) == pytest.approx(0.0, abs=1e-12)


def test_gathered_is_masked_in_outputs_and_gradients() -> None:
    q, k, v = (
        tensor.requires_grad_()
        for tensor in (rand(B, H, 5, D_K), rand(B, H_KV, T, D_K), rand(B, H_KV, T, 8))
    )
    scores = rand(B, 5, T).masked_fill(~causal_mask(5, T), -torch.inf)
    scores[1, 2] = -torch.inf
    scores[0, 3, 4:] = -torch.inf  # fewer keys than are read
    for count in (1, CHOSEN, T + 2):
        chosen = choose_keys(scores, count)
        output = attention_to_chosen(q, k, v, chosen, keys_per_query=count)
        expected, _ = attention_with_weights(q, k, v, mask=chosen[:, None])
        assert_alike(output, expected, (q, k, v))


def test_a_token_is_gathered_and_a_long_text_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, x, lengths = make_layer().eval(), rand(B, T, D), list[int]()

    def gathered(q: Tensor, *args: Any, **options: Any) -> Tensor:
        lengths.append(q.shape[2])
        return attention_to_chosen(q, *args, **options)

    monkeypatch.setattr(indexer, "attention_to_chosen", gathered)
    cache = layer.new_cache(B, T)
    parts = [layer(part, causal=True, cache=cache) for part in x.split([14, 1, 2], 1)]
    assert lengths == [1, 2]
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x, causal=True))
    mask = torch.rand(B, H, 1, T) < 0.7  # not the same for all heads
    bias = rand(1, H, 1, T)
    for how in ({"mask": mask}, {"score_bias": bias}):
        output, with_weights = (
            layer(x[:, -1:], context=x, return_weights=open_, **how)
            for open_ in (False, True)
        )
        torch.testing.assert_close(output, with_weights[0])
    assert len(lengths) == 2


@pytest.mark.parametrize(
    "core", [replace(KEYS, dense=True), ChosenKeys(keys_per_query=T)]
)
def test_with_all_keys_it_is_plain_attention(core: ChosenKeys) -> None:
    x = rand(B, T, D)
    for train_ in (True, False):
        layer = make_layer(core).train(train_)
        plain = MultiHeadAttention(num_kv_heads=H_KV, dtype=torch.float64, **SIZES)
        plain.load_state_dict(layer.state_dict(), strict=False)
        for how in ({"causal": True}, {"causal": True, "window": 5}, {}):
            torch.testing.assert_close(layer(x, **how), plain(x, **how))
    assert not torch.allclose(make_layer()(x), plain(x))


@pytest.mark.parametrize("form", ["keys", "entries"])
def test_neither_loss_reaches_what_the_other_trains(form: str) -> None:
    layer, x = make_layer(), rand(B, T, D).requires_grad_()
    if form == "entries":
        sizes = SIZES | {"rotary_dim": 2, "dtype": torch.float64}
        layer = CompressedAttention(ENTRIES, **sizes)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    output = layer(x, causal=True)
    index_loss = (layer.core if form == "keys" else layer.indexer).index_loss
    for loss, own in ((output.sum(), False), (index_loss, True)):
        slopes = torch.autograd.grad(
            loss, [x, *parameters], allow_unused=True, retain_graph=True
        )
        assert (slopes[0] is None or not slopes[0].any()) == own
        for name, slope in zip(names, slopes[1:], strict=True):
            reached = slope is not None and bool(slope.any())
            assert reached == (("indexer" in name) == own), name


def test_a_layer_can_be_copied_with_its_loss() -> None:
    layer = make_layer()
    layer(rand(B, T, D), causal=True)
    twin = copy.deepcopy(layer)
    assert twin.core.index_loss.item() == layer.core.index_loss.item() > 0


def test_the_loss_belongs_to_training() -> None:
    layer, x = make_layer().eval(), rand(B, T, D)
    layer(x, causal=True)
    with torch.no_grad():
        layer.train()(x, causal=True)
    assert layer.core.index_loss == 0
    config = GPTConfig(vocab_size=13, d_model=24, num_heads=4, num_layers=3)
    assert GPT(config).index_loss() == 0
    model = GPT(replace(config, attention=KEYS, softmax_every=3))
    model(torch.randint(13, (B, T)))
    losses = [block.attention.core.index_loss for block in model.blocks[:2]]
    torch.testing.assert_close(model.index_loss(), sum(losses) / 2)


@pytest.mark.parametrize(
    "attention", [ChosenKeys(keys_per_query=3, dense=True), ENTRIES]
)
def test_training_trains_the_indexer_towards_attention(attention: Any) -> None:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=7,
        max_seq_len=16,
        d_model=24,
        num_heads=4,
        num_layers=1,
        attention=attention,
    )
    model, tokens = GPT(config), torch.randint(7, (300,))
    large = "q_proj.weight", "k_proj.weight", "compressor.kv_proj.weight"
    for name, parameter in model.named_parameters():
        if name.removeprefix("blocks.0.attention.") in large:
            nn.init.normal_(parameter)
        parameter.requires_grad_("indexer" in name)

    def loss() -> float:
        model.train()(tokens[:64].view(4, 16))
        return model.index_loss().item()

    before = loss()
    recipe = Recipe(steps=60, warmup=5, lr=1e-2, precision="fp32", compile=False)
    train(model, tokens, recipe)
    assert 0 < loss() < 0.8 * before
    if attention is not ENTRIES:
        # The same weights make a model that reads the keys that were learned.
        sparse = GPT(replace(config, attention=replace(attention, dense=False)))
        sparse.load_state_dict(model.state_dict())
        assert not torch.allclose(sparse(tokens[None, :16]), model(tokens[None, :16]))


def test_eight_bits_round_the_scores_but_not_their_gradients() -> None:
    x = rand(B, T, D_I).requires_grad_()
    low = rounded_to_fp8(x)
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    off = (low - x).detach().abs()
    # Three bits after the first: half a step is a sixteenth.
    assert (off <= x.detach().abs() / 16 + largest / 448 / 512).all()
    assert (off > 0).any()
    torch.testing.assert_close(rounded_to_fp8(low), low)
    low.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert not rounded_to_fp8(torch.zeros(3, 5)).any()
    layer, text = make_layer(), rand(B, T, D)
    rounded = make_layer(replace(KEYS, fp8=True))
    rounded.load_state_dict(layer.state_dict())
    rounded(text, causal=True)
    layer(text, causal=True)
    loss, rounded_loss = layer.core.index_loss, rounded.core.index_loss
    assert loss != rounded_loss
    torch.testing.assert_close(loss, rounded_loss, rtol=0.2, atol=0.0)


def test_what_does_not_fit_is_named() -> None:
    for name in ("keys_per_query", "index_heads", "index_dim"):
        with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
            ChosenKeys(**{name: 0})
    with pytest.raises(ValueError, match=r"^keys_per_query=0 must be positive$"):
        choose_keys(torch.zeros(1, 2, 3), 0)
