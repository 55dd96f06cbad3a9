"""Other layouts against the programs that they come from.

GPT-2's against ``transformers``; nanoGPT's, which is no package, against its formula.
"""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


def large(module: torch.nn.Module) -> None:
    """Draw weights large enough for each of them to matter."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)


def theirs(**changes: Any) -> torch.nn.Module:
    """Make the ``transformers`` package's GPT-2, small and at random."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        **{
            "vocab_size": V,
            "n_positions": LONGEST,
            "n_embd": D,
            "n_layer": L,
            "n_head": H,
            "bos_token_id": None,
            "eos_token_id": None,
            **changes,
        }
    )
    model = GPT2LMHeadModel(config).eval()
    large(model)
    return model


def check_equal(ours: GPT, expected: torch.nn.Module) -> None:
    """Compare logits, and the gradients of all weights."""
    tokens = some_tokens()
    one, other = ours.eval()(tokens), expected(tokens).logits
    assert one.abs().max() > 0.5
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for logits in (one, other):
        F.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        ).backward()
    for parameter in ours.parameters():
        parameter.data = parameter.grad
    gradients, _ = to_gpt2(ours)
    parameters = dict(expected.named_parameters())
    assert gradients.keys() == parameters.keys()
    for name, gradient in gradients.items():
        wanted = parameters[name].grad
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6, msg=name)


ACTIVATIONS = ["gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2"]


def test_gpt2_gives_the_logits_of_transformers():
    changes: list[dict[str, Any]] = [
        *({"activation_function": name} for name in (*ACTIVATIONS, "silu", "swish")),
        {"n_inner": 17, "tie_word_embeddings": False},
        {"reorder_and_upcast_attn": True},
    ]
    for each in changes:
        expected = theirs(**each)
        ours = from_gpt2(expected.state_dict(), expected.config.to_dict())
        check_equal(ours, expected)


def test_weights_are_copied_in_single_precision_and_dropout_is_ours():
    expected = theirs(resid_pdrop=0.3).half()
    weights, settings = expected.state_dict(), expected.config.to_dict()
    ours = from_gpt2(weights, settings)
    assert ours.config.dropout == 0.0
    assert from_gpt2(weights, settings, dropout=0.2).config.dropout == 0.2
    before = ours.norm.weight.tolist()
    expected.transformer.ln_f.weight.data.zero_()
    assert ours.norm.weight.tolist() == before
    expected.transformer.ln_f.weight.data.copy_(ours.norm.weight)
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


UNREADABLE = [
    ("model_type", "llama", "has model_type='llama'; only model_type='gpt2' can"),
    ("layer_norm_epsilon", 1e-6, "has layer_norm_epsilon=1e-06; only "),
    ("scale_attn_weights", False, "has scale_attn_weights=False; only "),
    (
        "scale_attn_by_inverse_layer_idx",
        True,
        "has scale_attn_by_inverse_layer_idx=True; only ",
    ),
    ("add_cross_attention", True, "has add_cross_attention=True; only "),
    # A list has no hash.
    (
        "activation_function",
        ["tanh"],
        "has activation_function=['tanh']; only gelu_new, gelu_fast, ",
    ),
    ("n_head", 5, "has settings that do not fit: d_model=12 must be divisible by "),
    ("n_embd", "wide", "has settings that do not fit: d_model='wide' must be an int"),
]


@pytest.mark.usefixtures("as_a_caller")
def test_what_gpt_does_not_do_is_refused():
    expected = theirs()
    for name, value, message in UNREADABLE:
        settings = {**expected.config.to_dict(), name: value}
        with pytest.raises(CheckpointError, match=f"^tiny {re.escape(message)}"):
            from_gpt2(expected.state_dict(), settings, origin="tiny")
    settings = theirs().config.to_dict()
    del settings["n_head"], settings["vocab_size"]
    message = "^the given model does not say vocab_size$"
    with pytest.raises(CheckpointError, match=message):
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
        {},
        {"tie_head": False, "d_ff": 17, "activation": "silu"},
        {"num_kv_heads": H, "fused": False, "activation": "gelu", "dropout": 0.1},
    ],
)
def test_transformers_gives_our_logits(changes):
    model = GPT(replace(OURS, **changes))
    large(model)
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
    kept = replace(model.config, num_kv_heads=None, fused=True)
    assert again.config == kept
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight)


def test_what_gpt2_has_not_is_refused():
    for changes, message in (
        (
            {"norm": "rms", "bias": False, "qk_norm": True},
            "norm='rms', bias=False, qkv_bias=False, qk_norm=True",
        ),
        ({"num_kv_heads": 1}, "num_kv_heads=1"),
        ({"activation": "swiglu"}, "activation='swiglu'"),
    ):
        with pytest.raises(ValueError, match=f"^GPT2LMHeadModel has no {message}$"):
            to_gpt2(GPT(replace(OURS, **changes)))


# nanoGPT.


def nanogpt(*, bias: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Give weights as nanoGPT's model names and shapes them, and its model_args."""
    norms, shapes = (
        {"ln_1": (D,), "ln_2": (D,)},
        {
            "attn.c_attn": (3 * D, D),
            "attn.c_proj": (D, D),
            "mlp.c_fc": (4 * D, D),
            "mlp.c_proj": (D, 4 * D),
        },
    )
    shapes = {
        f"h.{i}.{name}": shape
        for i in range(L)
        for name, shape in {**norms, **shapes}.items()
    }
    shapes |= {"ln_f": (D,)}
    weights = {f"transformer.{name}.weight": shape for name, shape in shapes.items()}
    if bias:
        for name, shape in shapes.items():
            weights[f"transformer.{name}.bias"] = shape[:1]
    weights |= {
        "transformer.wte.weight": (V, D),
        "transformer.wpe.weight": (LONGEST, D),
    }
    drawn = {name: 0.4 * torch.randn(shape) for name, shape in weights.items()}
    drawn["lm_head.weight"] = drawn["transformer.wte.weight"]
    settings = {"vocab_size": V, "block_size": LONGEST, "n_embd": D, "n_head": H}
    return drawn, {**settings, "n_layer": L, "bias": bias, "dropout": 0.1}


def nanogpt_logits(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Work out what nanoGPT's model gives, from its weights and nothing else."""
    w = {name.removeprefix("transformer."): weight for name, weight in weights.items()}

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0.0)

    later = torch.ones(T, T).triu(1).bool()
    x = w["wte.weight"][tokens] + w["wpe.weight"][:T]
    for i in range(L):
        q, k, v = (
            part.view(B, T, H, D_K).transpose(1, 2)
            for part in linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(D, 2)
        )
        scores = (q @ k.mT / math.sqrt(D_K)).masked_fill(later, -math.inf)
        heads = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)
        x = x + linear(heads, f"h.{i}.attn.c_proj")
        inner = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = x + linear(inner, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["lm_head.weight"].T


@pytest.mark.parametrize("bias", [True, False])
def test_nanogpt_gives_the_logits_of_its_formula(bias):
    weights, settings = nanogpt(bias=bias)
    tokens = some_tokens()
    expected = nanogpt_logits(weights, tokens)
    # A compiled model has a prefix, and an old one its mask among the weights.
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, LONGEST, LONGEST).tril()}
    plain = from_nanogpt({**weights, **mask}, settings)
    compiled = from_nanogpt(
        {f"_orig_mod.{name}": w for name, w in weights.items()}, settings
    )
    for model in (plain, compiled):
        logits = model.eval()(tokens)
        assert logits.abs().max() > 1.0
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
        assert (model.config.bias, model.config.dropout) == (bias, 0.1)
    assert plain.num_parameters() == sum(w.numel() for w in weights.values()) - V * D
