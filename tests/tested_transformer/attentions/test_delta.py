"""The delta rule: three forms of one thing, by hand, and beside transformers'."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor

from tested_transformer.attentions.delta import (
    DeltaAttention,
    DeltaRule,
    chunked_delta_rule,
    parallel_delta_rule,
    recurrent_delta_rule,
)

# Pairwise different: batch, heads, positions, widths of keys and of values.
B, H, T, D_K, D_V = 2, 3, 11, 5, 7
DOUBLE = {"dtype": torch.float64}
GATES = ("no", "by head", "by feature")


FORMS = {
    "parallel": parallel_delta_rule,
    "chunks of 1": partial(chunked_delta_rule, chunk_size=1),
    # The last one is shorter.
    "chunks of 4": partial(chunked_delta_rule, chunk_size=4),
    "one chunk": partial(chunked_delta_rule, chunk_size=T + 2),
}


def inputs(gates: str) -> tuple[list[Tensor], dict[str, Tensor]]:
    q, k = F.normalize(torch.randn(2, B, H, T, D_K, **DOUBLE), dim=-1)
    options = {"state": torch.randn(B, H, D_K, D_V, **DOUBLE)}
    if gates != "no":
        shape = (B, H, T) if gates == "by head" else (B, H, T, D_K)
        options["log_decay"] = -torch.rand(shape, **DOUBLE)
    v, beta = torch.randn(B, H, T, D_V, **DOUBLE), torch.rand(B, H, T, **DOUBLE)
    for tensor in (q, k, v, beta, *options.values()):
        tensor.requires_grad_()
    return [q, k, v, beta], options


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_recurrent_one(form: str, gates: str):
    tensors, options = inputs(gates)
    output = FORMS[form](*tensors, **options)
    expected = recurrent_delta_rule(*tensors, **options)
    assert_alike(output, expected, [*tensors, *options.values()], close=1e-11)


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_it_is_the_rule_of_transformers(form: str, gates: str):
    """Theirs puts positions before heads, and divides queries by the root of d_k.

    It computes in float32 whatever comes in.
    """
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    rule = getattr(qwen, f"torch_{form}_gated_delta_rule")
    if gates == "by feature":
        rule = getattr(kimi, f"{form}_kimi_delta_attention")
    tensors, options = inputs(gates)
    q, k, v, beta = tensors
    log_decay = options.get("log_decay", torch.zeros_like(beta))
    output, state = rule(
        *(tensor.transpose(1, 2) for tensor in (q * D_K**0.5, k, v, log_decay, beta)),
        initial_state=options["state"],
        output_final_state=True,
        **({"chunk_size": 4} if form == "chunk" else {}),
    )
    assert_alike(
        recurrent_delta_rule(*tensors, **options),
        (output.transpose(1, 2), state.double()),
        [*tensors, *options.values()],
        close=1e-5,
    )


def test_a_key_that_comes_again_gets_the_new_value():
    k = torch.eye(3)[[0, 1, 0]][None, None]
    v = torch.tensor([[1.0, 0], [0, 2], [5, 6]])[None, None]
    ones = torch.ones(1, 1, 3)
    output, state = recurrent_delta_rule(k, k, v, ones)
    torch.testing.assert_close(output, v)
    expected = torch.tensor([[5.0, 6], [0, 2], [0, 0]])
    torch.testing.assert_close(state[0, 0], expected)
    # Half of the difference; and a gate, which halves all that was there before.
    _, state = recurrent_delta_rule(k, k, v, ones / 2)
    expected = torch.tensor([[2.75, 3], [0, 1], [0, 0]])
    torch.testing.assert_close(state[0, 0], expected)
    halves = torch.full((1, 1, 3), 0.5).log()
    _, state = recurrent_delta_rule(k, k, v, ones, log_decay=halves)
    torch.testing.assert_close(state[0, 0], torch.tensor([[5.0, 6], [0, 1], [0, 0]]))


def test_gates_that_are_almost_shut_overflow_nowhere():
    tensors, _ = inputs("no")
    tensors = [tensor.float() for tensor in tensors]
    log_decay = torch.full((B, H, T), -50.0)
    expected, _ = recurrent_delta_rule(*tensors, log_decay=log_decay)
    output, _ = parallel_delta_rule(*tensors, log_decay=log_decay)
    assert expected.isfinite().all()
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("gates", GATES)
def test_the_layer_by_hand(gates: str):
    gated, by_feature = gates != "no", gates == "by feature"
    options = {"gated": gated, "by_feature": by_feature}
    layer = DeltaAttention(
        d_model=7, num_heads=3, head_dim=5, chunk_size=4, **options
    ).double()
    x = torch.randn(B, T, 7, **DOUBLE)
    split = [
        proj(x).reshape(B, T, 3, 5).permute(0, 2, 1, 3)
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]
    q, k = (tensor / tensor.norm(dim=-1, keepdim=True) for tensor in split[:2])
    beta, log_decay = layer.beta_proj(x).sigmoid().permute(0, 2, 1), None
    if gated:
        log_decay = layer.gate_proj(x).sigmoid().log() / 16
        log_decay = log_decay.reshape(B, T, 3, 5 if by_feature else 1)
        log_decay = log_decay.permute(0, 2, 1, 3)
    heads, _ = recurrent_delta_rule(q, k, split[2], beta, log_decay=log_decay)
    heads = heads / (heads.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    expected = layer.o_proj(heads.permute(0, 2, 1, 3).reshape(B, T, 15))
    torch.testing.assert_close(layer(x), expected)


def test_the_layer_goes_on_from_its_state():
    layer = DeltaAttention(d_model=8, num_heads=2, gated=True).double()
    x = torch.randn(B, T, 8, **DOUBLE)
    first, state = layer(x[:, :5], return_state=True)
    second = layer(x[:, 5:], state=state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), layer(x))
    assert state.shape == (B, 2, 4, 4)


@pytest.mark.usefixtures("as_a_caller")
def test_what_does_not_fit_is_named():
    q, beta = torch.ones(B, H, T, D_K), torch.ones(B, H, T)
    for inputs, options, message in (
        ((q, q[..., :2], q, beta), {}, r"k must be \(2, 3, 11, 5\), like q; it is"),
        ((q, q, q, beta[..., 0]), {}, r"beta must be \(2, 3, 11\); it is \(2, 3\)"),
        ((q, q, q, 0.5), {}, r"beta must be a tensor, \(2, 3, 11\); it is a"),
        ((q, q, q, beta.half()), {}, "must have one dtype: k is float32, beta is"),
        (
            (q, q, q, beta),
            {"log_decay": q[..., :2]},
            r"log_decay must be \(2, 3, 11\), like beta, or \(2, 3, 11, 5\), like k",
        ),
    ):
        for form in (recurrent_delta_rule, *FORMS.values()):
            with pytest.raises((TypeError, ValueError), match=message):
                form(*inputs, **options)
    with pytest.raises(ValueError, match=r"^by_feature=True needs gated=True"):
        DeltaRule(by_feature=True)
    with pytest.raises(ValueError, match="chunk_size=0 must be positive"):
        chunked_delta_rule(q, q, q, beta, chunk_size=0)


def test_its_state_is_exact_in_half_precision() -> None:
    """Up to what queries, keys, values and gates are rounded to: by hand in float64."""
    layer = DeltaAttention(d_model=24, num_heads=3, gated=True).bfloat16()
    x = torch.randn(B, 700, 24).bfloat16()
    output, state = layer(x, return_state=True)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    q, k, v = (
        proj(x).double().unflatten(-1, (3, 8)).transpose(1, 2)
        for proj in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    beta, gate = (
        proj(x).double().sigmoid().mT for proj in (layer.beta_proj, layer.gate_proj)
    )
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    _, exact = recurrent_delta_rule(q, k, v, beta, log_decay=gate.log() / 16)
    torch.testing.assert_close(state.double(), exact, rtol=1e-4, atol=1e-5)
