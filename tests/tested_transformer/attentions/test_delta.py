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
        shape = (B, H, T, D_K) if gates == "by feature" else (B, H, T)
        options["log_decay"] = -torch.rand(shape, **DOUBLE)
    if gates == "almost shut":  # what is left of the first token would overflow
        options["log_decay"] -= 100.0
    v, beta = torch.randn(B, H, T, D_V, **DOUBLE), torch.rand(B, H, T, **DOUBLE)
    for tensor in (q, k, v, beta, *options.values()):
        tensor.requires_grad_()
    return [q, k, v, beta], options


@pytest.mark.parametrize("gates", [*GATES, "almost shut"])
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


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_is_solved_in_float32(form: str):
    exact, options = inputs("by head")
    coarse = [tensor.bfloat16() for tensor in exact]
    options = {name: tensor.bfloat16() for name, tensor in options.items()}
    output, state = FORMS[form](*coarse, **options)
    assert output.dtype == state.dtype == torch.bfloat16
    expected, _ = recurrent_delta_rule(
        *(tensor.double() for tensor in coarse),
        **{name: tensor.double() for name, tensor in options.items()},
    )
    # Eight bits each, and what is rounded on the way.
    assert (output.double() - expected).norm() < 0.02 * expected.norm()


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
