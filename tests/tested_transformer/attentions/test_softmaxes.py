"""Caps, sinks and gates: open = fused = those of ``transformers``, weights copied."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attentions import (
    AdjustedSoftmax,
    adjusted_attention_with_weights,
    cap_scores,
    fused_attention_with_sink,
    weights_with_sink,
)
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import rotary_table

# Pairwise different: batch, heads, heads of keys, positions, widths.
B, H, H_KV, T, S, D, D_K, D_V = 2, 6, 3, 7, 11, 18, 4, 5
THEIR_SIZES: dict[str, Any] = {
    **{"hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H_KV},
    **{"head_dim": D_K, "attn_implementation": "eager"},
}
ROTARY = rotary_table(torch.arange(T), D_K)
FUTURE = torch.full((T, T), float("-inf"), dtype=torch.float64).triu(1)[None, None]


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make_layer(*, bias: bool = False, **settings: Any) -> MultiHeadAttention:
    layer = MultiHeadAttention(
        d_model=D,
        num_heads=H,
        num_kv_heads=H_KV,
        head_dim=D_K,
        bias=bias,
        core=AdjustedSoftmax(**settings),
    )
    return with_large_weights(layer.double(), 0.7)


def called(theirs: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Return what theirs does; it computes some steps in float32, if let."""
    cos, sin = (half[None].double() for half in ROTARY)
    if "GptOss" not in type(theirs).__name__:
        cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        return theirs(x, (cos, sin), FUTURE)[0]


def assert_same_as_theirs(
    ours: nn.Module,
    theirs: nn.Module,
    pairs: Sequence[tuple[Tensor, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = rand(B, T, D).requires_grad_()
    our_weights, their_weights = zip(*pairs, strict=True)
    assert len(our_weights) == len([*ours.parameters()])
    expected = called(theirs, x, monkeypatch)
    for output in (
        ours(x, causal=True, rotary=ROTARY),
        ours(x, causal=True, rotary=ROTARY, return_weights=True)[0],
    ):
        assert_alike(
            output, expected, [x, *our_weights], [x, *their_weights], close=1e-11
        )


def copied(ours: nn.Module, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Give theirs the weights of ours that have the same name, and return the pairs."""
    named = dict(theirs.named_parameters())
    pairs = [(p, named[name]) for name, p in ours.named_parameters() if name in named]
    for source, target in pairs:
        target.data = source.detach().clone()
    return pairs


def test_a_cap_is_gemma_2s(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Gemma2Config
    from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention

    ours = make_layer(soft_cap=0.9, scale=17**-0.5)
    config = Gemma2Config(
        **THEIR_SIZES, query_pre_attn_scalar=17, attn_logit_softcapping=0.9
    )
    theirs = Gemma2Attention(config, layer_idx=0).double()
    assert_same_as_theirs(ours, theirs, copied(ours, theirs), monkeypatch)


@pytest.mark.parametrize("bias", [True, False])
def test_a_learned_sink_is_gpt_oss_s(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import GptOssConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

    ours = make_layer(learned_sink=True, bias=bias)
    config = GptOssConfig(**THEIR_SIZES, attention_bias=bias)
    theirs = GptOssAttention(config, layer_idx=0).double()
    pairs = copied(ours, theirs)
    theirs.sinks.data = ours.core.sink.detach().clone()
    pairs.append((ours.core.sink, theirs.sinks))
    assert_same_as_theirs(ours, theirs, pairs, monkeypatch)


def test_a_gate_is_qwen3_nexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the norms of queries and keys, and for the order of its projection."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    ours = make_layer(gate="features")
    theirs = Qwen3NextAttention(Qwen3NextConfig(**THEIR_SIZES), layer_idx=0).double()
    theirs.q_norm = nn.Identity()
    theirs.k_norm = nn.Identity()
    copied(ours, theirs)
    # Theirs has one matrix for both, a head's query before its gate.
    both = ours.q_proj.weight, ours.core.gate_proj.weight
    heads = [weight.unflatten(0, (H, D_K)) for weight in both]
    del theirs.q_proj.weight
    theirs.q_proj.weight = torch.cat(heads, dim=1).flatten(0, 1)
    names = "k_proj", "v_proj", "o_proj"
    our_weights, their_weights = (
        [layer.get_submodule(name).weight for name in names] for layer in (ours, theirs)
    )
    x = rand(B, T, D).requires_grad_()
    output, expected = (
        ours(x, causal=True, rotary=ROTARY),
        called(theirs, x, monkeypatch),
    )
    assert_alike(
        output,
        expected,
        [x, *our_weights, *both],
        [x, *their_weights, *both],
        close=1e-11,
    )


HOW: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"causal": True},
    "a window": {"window": 3},
    "a mask": {"mask": torch.rand(B, 1, T, S, generator=torch.manual_seed(0)) < 0.6},
    "a bias": {"score_bias": rand(H, T, S)[None], "causal": True},
    "a scale": {"scale": 0.3, "causal": True},
    "no scores": {"scale": 0.0},
    "a flat bias": {"score_bias": rand(T, S), "scale": 0.3},
    "an empty row": {"mask": torch.zeros(T, 1, dtype=torch.bool)},
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_a_fused_sink_is_the_open_one(how: dict[str, Any]) -> None:
    q, k, v = rand(B, H, T, D_K), rand(B, H_KV, S, D_K), rand(B, H_KV, S, D_V)
    inputs = [tensor.requires_grad_() for tensor in (q, k, v, rand(H))]
    sink = inputs[-1]
    expected, _ = adjusted_attention_with_weights(q, k, v, sink=sink, **how)
    output = fused_attention_with_sink(q, k, v, sink, **how)
    assert_alike(output, expected, inputs, close=1e-11)


def test_a_sink_is_a_gate_made_of_the_scores() -> None:
    """It scales a row by sigmoid(log of the sum of exponentials - sink)."""
    scores, sink = rand(B, H, T, S), rand(H)
    gate = (scores.logsumexp(-1, keepdim=True) - sink[:, None, None]).sigmoid()
    expected = gate * scores.softmax(-1)
    torch.testing.assert_close(weights_with_sink(scores, sink), expected)
    core = AdjustedSoftmax(learned_sink=True)
    layer = MultiHeadAttention(d_model=D, num_heads=H, core=core)
    assert layer.core.sink.eq(0).all()  # a new one


def test_inputs_that_do_not_fit(as_a_caller: None) -> None:
    q, k, v = rand(B, H, T, D_K), rand(B, H_KV, S, D_K), rand(B, H_KV, S, D_V)
    mask = torch.ones(3, T, S, dtype=torch.bool)
    for how, message in (
        ({"mask": mask}, r"mask is \(3, 7, 11\) but must be"),
        ({"window": 0}, "window=0 must be positive"),
        ({"score_bias": rand(T, T)}, r"score_bias is \(7, 7\) but must be"),
        ({"dropout_p": 2.0}, "dropout_p=2.0 must lie between 0 and 1"),
        ({"causal": 1}, "causal=1 must be True or False"),
    ):
        for call in (adjusted_attention_with_weights, fused_attention_with_sink):
            with pytest.raises((TypeError, ValueError), match=message):
                call(q, k, v, sink=rand(H), **how)
    for call, message in (
        (lambda: make_layer(soft_cap=0.0), r"soft_cap=0.0 must be positive"),
        (
            lambda: make_layer(gate="tokens"),
            r"gate='tokens' must be one of none, ",
        ),
        (lambda: cap_scores(q, float("inf")), "cap=inf must be positive and finite"),
        (
            lambda: adjusted_attention_with_weights(q, k, v, sink=rand(H_KV)),
            r"sink must be \(6,\), one per head; it is",
        ),
        (
            lambda: fused_attention_with_sink(q, k, v, rand(H_KV)),
            r"sink must be \(6,\), one per head; it is",
        ),
        (lambda: weights_with_sink(q, 0.0), r"sink must be a tensor, \(6,\)"),
        (
            lambda: weights_with_sink(q, rand(H), mask),
            r"mask is \(3, 7, 11\) but must be",
        ),
        (
            lambda: weights_with_sink(q, rand(H), torch.zeros(T, D_K)),
            "mask must be boolean",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_a_bias_is_added_after_the_cap_and_so_is_not_capped() -> None:
    q, k, v, bias = rand(B, H, T, D_K), rand(B, H_KV, S, D_K), rand(B, H_KV, S, D_V), 9
    scores = q @ k.repeat_interleave(2, dim=1).mT / 2 * 5
    added = bias * rand(H, T, S).sign()
    expected = (0.8 * (scores / 0.8).tanh() + added).softmax(dim=-1)
    how = {"soft_cap": 0.8, "scale": 2.5, "score_bias": added[None]}
    output, weights = adjusted_attention_with_weights(q, k, v, **how)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(output, expected @ v.repeat_interleave(2, dim=1))
