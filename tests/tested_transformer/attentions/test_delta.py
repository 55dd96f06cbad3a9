"""The delta rule: three forms of one thing, by hand, and beside transformers'."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
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


def in_chunks_of(chunk_size: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def run(*inputs: Tensor, **options: Tensor | None) -> tuple[Tensor, Tensor]:
        return chunked_delta_rule(*inputs, chunk_size=chunk_size, **options)

    return run


FORMS = {
    "parallel": parallel_delta_rule,
    "chunks of 1": in_chunks_of(1),
    "chunks of 4": in_chunks_of(4),  # the last one is shorter
    "one chunk": in_chunks_of(T + 2),
}


def inputs(gates: str) -> tuple[list[Tensor], dict[str, Tensor]]:
    q, k = F.normalize(torch.randn(2, B, H, T, D_K, **DOUBLE), dim=-1)
    options = {"state": torch.randn(B, H, D_K, D_V, **DOUBLE)}
    if gates != "no":
        shape = (B, H, T) if gates == "by head" else (B, H, T, D_K)
        options["log_decay"] = -torch.rand(shape, **DOUBLE)
    v, beta = torch.randn(B, H, T, D_V, **DOUBLE), torch.rand(B, H, T, **DOUBLE)
    return [q, k, v, beta], options


def with_gradients(
    form: Callable[..., tuple[Tensor, Tensor]],
    tensors: list[Tensor],
    options: dict[str, Tensor],
) -> list[Tensor]:
    """Return output and state, and what both pass back to every input."""
    tensors = [each.detach().requires_grad_() for each in tensors]
    options = {name: each.detach().requires_grad_() for name, each in options.items()}
    results = form(*tensors, **options)
    generator = torch.Generator().manual_seed(1)
    loss = sum(
        (each * torch.randn(each.shape, generator=generator, **DOUBLE)).sum()
        for each in results
    )
    wanted = [*tensors, *options.values()]
    return [*results, *torch.autograd.grad(loss, wanted)]


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_recurrent_one(form: str, gates: str):
    tensors, options = inputs(gates)
    expected = with_gradients(recurrent_delta_rule, tensors, options)
    for one, other in zip(
        with_gradients(FORMS[form], tensors, options), expected, strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def theirs(form: str, gates: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a rule of transformers, called as ours is.

    It puts positions before heads, divides queries by the root of their width, and
    computes in float32 whatever comes in.
    """
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    rule = getattr(qwen, f"torch_{form}_gated_delta_rule")
    if gates == "by feature":
        rule = getattr(kimi, f"{form}_kimi_delta_attention")
    more = {"chunk_size": 4} if form == "chunk" else {}

    def run(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor,
        *,
        log_decay: Tensor | None = None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        log_decay = torch.zeros_like(beta) if log_decay is None else log_decay
        output, state = rule(
            *(each.transpose(1, 2) for each in (q * D_K**0.5, k, v, log_decay, beta)),
            initial_state=state,
            output_final_state=True,
            **more,
        )
        return output.transpose(1, 2), state.double()

    return run


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_it_is_the_rule_of_transformers(form: str, gates: str):
    tensors, options = inputs(gates)
    for one, other in zip(
        with_gradients(recurrent_delta_rule, tensors, options),
        with_gradients(theirs(form, gates), tensors, options),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


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
    tensors = [each.float() for each in tensors]
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
    q, k = (each / each.norm(dim=-1, keepdim=True) for each in split[:2])
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
@pytest.mark.parametrize("form", ["recurrent", "parallel", "chunks of 4"])
def test_what_does_not_fit_is_named(form: str):
    q, beta = torch.ones(B, H, T, D_K), torch.ones(B, H, T)
    run = FORMS.get(form, recurrent_delta_rule)
    with pytest.raises(ValueError, match=r"k must be \(2, 3, 11, 5\), like q; it is"):
        run(q, q[..., :2], q, beta)
    with pytest.raises(ValueError, match=r"beta must be \(2, 3, 11\); it is \(2, 3\)"):
        run(q, q, q, beta[..., 0])
    message = (
        r"log_decay must be \(2, 3, 11\), like beta, or \(2, 3, 11, 5\), like k; it"
    )
    with pytest.raises(ValueError, match=message):
        run(q, q, q, beta, log_decay=q[..., :2])
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


def test_beta_is_a_tensor_of_the_same_kind(as_a_caller: None) -> None:
    q, v = torch.rand(2, 3, 7, 4), torch.rand(2, 3, 7, 5)
    with pytest.raises(TypeError, match=r"beta must be a tensor, \(2, 3, 7\); it is a"):
        chunked_delta_rule(q, q, v, 0.5)
    half = torch.rand(2, 3, 7).half()
    with pytest.raises(TypeError, match="must have one dtype: k is float32, beta is"):
        chunked_delta_rule(q, q, v, half)
