"""Other layouts against the programs that they come from.

GPT-2's against ``transformers``; nanoGPT's, which is no package, against GPT-2's.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.checkpoints.folders import as_nanogpt
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor

from tested_transformer.checkpoints import (
    CheckpointError,
    from_gpt2,
    from_nanogpt,
    to_gpt2,
)
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: vocabulary, positions, heads, head width, layers, batch, T.
V, LONGEST, H, D_K, L, B, T = 13, 11, 3, 4, 2, 5, 7
D = H * D_K


def some_tokens() -> Tensor:
    return torch.randint(V, (B, T))


def theirs(**changes: Any) -> torch.nn.Module:
    """Make the ``transformers`` package's GPT-2, small and at random."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": V, "n_positions": LONGEST, "n_embd": D, "n_layer": L}
    none = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(**{**sizes, "n_head": H, **none, **changes}))
    return with_large_weights(model).eval()


def check_equal(ours: GPT, expected: torch.nn.Module) -> None:
    """Compare logits, and the gradients of all weights."""
    tokens = some_tokens()
    our_logits, their_logits = ours.eval()(tokens), expected(tokens).logits
    assert our_logits.abs().max() > 0.5
    torch.testing.assert_close(our_logits, their_logits, rtol=1e-5, atol=1e-5)
    for logits in (our_logits, their_logits):
        guesses, truth = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        F.cross_entropy(guesses, truth).backward()
    for parameter in ours.parameters():
        parameter.data = parameter.grad
    gradients, _ = to_gpt2(ours)
    their_gradients = {
        name: weight.grad for name, weight in expected.named_parameters()
    }
    torch.testing.assert_close(gradients, their_gradients, rtol=1e-4, atol=1e-6)


ACTIVATIONS = ["gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2"]


def test_gpt2_gives_the_logits_of_transformers():
    changes: list[dict[str, Any]] = [
        *({"activation_function": name} for name in (*ACTIVATIONS, "silu", "swish")),
        {"n_inner": 17, "tie_word_embeddings": False},
        {"reorder_and_upcast_attn": True},
    ]
    for options in changes:
        expected = theirs(**options)
        ours = from_gpt2(expected.state_dict(), expected.config.to_dict())
        check_equal(ours, expected)


def test_weights_are_copied_in_single_precision_and_dropout_is_ours():
    expected = theirs(resid_pdrop=0.3).half()
    weights, settings = expected.state_dict(), expected.config.to_dict()
    ours = from_gpt2(weights, settings)
    assert ours.config.dropout == 0.0
    assert from_gpt2(weights, settings, dropout=0.2).config.dropout == 0.2
    kept = weights["transformer.ln_f.weight"].clone()
    weights["transformer.ln_f.weight"].zero_()
    assert torch.equal(ours.norm.weight, kept.float())
    weights["transformer.ln_f.weight"].copy_(kept)
    check_equal(ours, expected.float())


def test_names_may_lack_their_prefix_and_bring_masks_along():
    """As the published file of GPT-2 has it."""
    expected = theirs()
    weights = expected.transformer.state_dict()
    assert "wte.weight" in weights
    for i in range(L):
        weights[f"h.{i}.attn.bias"] = torch.ones(1, 1, LONGEST, LONGEST).tril()
        weights[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    settings = {"vocab_size": V, "n_positions": LONGEST, "n_embd": D}
    ours = from_gpt2(weights, {**settings, "n_head": H, "n_layer": L, "n_ctx": 99})
    check_equal(ours, expected)


def test_what_gpt_does_not_do_is_refused():
    settings = theirs().config.to_dict()
    for name, value in {
        "model_type": "llama",
        "layer_norm_epsilon": 1e-6,
        "scale_attn_weights": False,
        "scale_attn_by_inverse_layer_idx": True,
        "add_cross_attention": True,
        "activation_function": ["tanh"],  # a list has no hash
    }.items():
        message = f"^tiny has {name}={re.escape(repr(value))}; only "
        with pytest.raises(CheckpointError, match=message):
            from_gpt2({}, settings | {name: value}, origin="tiny")
    del settings["n_head"]
    with pytest.raises(CheckpointError, match=r"^the given model does not say n_head$"):
        from_gpt2({}, settings)


# And back.

OURS = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=D,
    num_heads=H,
    num_layers=L,
    activation="gelu_tanh",
)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_head": False, "d_ff": 17, "activation": "silu"},
        {"num_kv_heads": H, "fused": False, "activation": "gelu", "dropout": 0.1},
    ],
)
def test_transformers_gives_our_logits(changes):
    model = with_large_weights(GPT(replace(OURS, **changes)))
    weights, settings = to_gpt2(model)
    assert all(weight.is_contiguous() for weight in weights.values())
    expected = theirs(**settings)
    missing, unknown = expected.load_state_dict(weights, strict=False)
    assert unknown == []
    assert missing == ["lm_head.weight"] * model.config.tie_head
    tokens = some_tokens()
    torch.testing.assert_close(
        model.eval()(tokens), expected(tokens).logits, rtol=1e-5, atol=1e-5
    )
    assert expected.config.attn_pdrop == model.config.dropout
    again = from_gpt2(weights, settings, dropout=model.config.dropout)
    assert again.config == replace(model.config, num_kv_heads=None, fused=True)
    state = again.state_dict()
    torch.testing.assert_close(state, model.state_dict(), rtol=0, atol=0)


def test_what_gpt2_has_not_is_refused():
    for changes, message in (
        ({"norm": "rms", "qk_norm": True}, "norm='rms', qk_norm=True"),
        ({"bias": False}, "bias=False, qkv_bias=False"),
        ({"num_kv_heads": 1}, "num_kv_heads=1"),
        ({"activation": "swiglu"}, "activation='swiglu'"),
    ):
        with pytest.raises(ValueError, match=f"^GPT2LMHeadModel has no {message}$"):
            to_gpt2(GPT(replace(OURS, **changes)))


@pytest.mark.parametrize("bias", [True, False])
def test_nanogpt_is_a_gpt2_whose_matrices_are_not_turned(bias):
    config = replace(OURS, activation="gelu", dropout=0.1)  # not by a tanh
    model = with_large_weights(GPT(config))
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and not bias:
            parameter.data.zero_()
    weights, settings = as_nanogpt(model, bias=bias)
    tokens = some_tokens()
    expected = model.eval()(tokens)
    assert expected.abs().max() > 1.0
    # A compiled model has a prefix, and an old one its mask among the weights.
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, LONGEST, LONGEST).tril()}
    compiled = {f"_orig_mod.{name}": weight for name, weight in weights.items()}
    for tensors in (weights | mask, compiled):
        ours = from_nanogpt(tensors, settings)
        assert ours.config == replace(model.config, bias=bias)
        torch.testing.assert_close(ours.eval()(tokens), expected, rtol=1e-5, atol=1e-5)
