"""Linear attention: three forms of one thing, each beside sums written out."""

from functools import partial

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor

from tested_transformer.attentions.linear import (
    LinearAttention,
    averaged_linear_attention,
    chunked_linear_attention,
    decayed_products,
    parallel_linear_attention,
    positive_features,
    recurrent_linear_attention,
)

# Pairwise different: batch, heads, positions, widths of keys and of values.
B, H, T, D_K, D_V = 2, 3, 11, 5, 7
DOUBLE = {"dtype": torch.float64}


FORMS = {
    "parallel": parallel_linear_attention,
    "chunks of 1": partial(chunked_linear_attention, chunk_size=1),
    # The last one is shorter.
    "chunks of 4": partial(chunked_linear_attention, chunk_size=4),
    "one chunk": partial(chunked_linear_attention, chunk_size=T + 2),
}


def inputs(gates: str = "no") -> tuple[list[Tensor], dict[str, Tensor]]:
    q, k = torch.randn(2, B, H, T, D_K, **DOUBLE)
    options = {"state": torch.randn(B, H, D_K, D_V, **DOUBLE)}
    if gates != "no":
        shape = (B, H, T, D_K if gates == "by feature" else 1)
        options["log_decay"] = -torch.rand(shape, **DOUBLE)
    if gates == "almost shut":  # what is left of the first token would overflow
        options["log_decay"] -= 100.0
    return [q, k, torch.randn(B, H, T, D_V, **DOUBLE)], options


@pytest.mark.parametrize("gates", ["no", "by head", "by feature", "almost shut"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_recurrent_one(form: str, gates: str):
    tensors, options = inputs(gates)
    leaves = [tensor.requires_grad_() for tensor in (*tensors, *options.values())]
    output = FORMS[form](*tensors, **options)
    expected = recurrent_linear_attention(*tensors, **options)
    assert_alike(output, expected, leaves, close=1e-11)


def test_each_output_is_the_sum_over_the_past():
    (q, k, v), _ = inputs()
    log_decay = -torch.rand(B, H, T, D_K, **DOUBLE)
    output, state = recurrent_linear_attention(q, k, v, log_decay=log_decay)
    for t in range(T):
        expected = torch.zeros(B, H, D_V, **DOUBLE)
        for s in range(t + 1):
            left = log_decay[:, :, s + 1 : t + 1].sum(dim=2).exp()
            expected += (q[:, :, t] * left * k[:, :, s]).sum(-1, True) * v[:, :, s]
        torch.testing.assert_close(output[:, :, t], expected)
    torch.testing.assert_close(output[:, :, -1], (q[:, :, -1:] @ state).squeeze(2))


def test_tables_by_feature_are_not_kept_and_their_gradient_has_one():
    q, k = torch.randn(4, B, H, T, D_K, **DOUBLE), torch.randn(B, H, T, D_K, **DOUBLE)
    kept = -torch.rand(B, H, T, D_K, **DOUBLE).cumsum(dim=2)
    leaves = [tensor.requires_grad_() for tensor in (q, k, kept)]
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        decayed_products(*leaves)
    assert max(sizes) == q.numel()
    small = [x[..., :2, :3, :2].detach().requires_grad_() for x in leaves]
    assert torch.autograd.gradgradcheck(decayed_products, small)


def test_averaged_values_are_weighted_by_features_that_are_positive():
    (q, k, v), _ = inputs()
    features = [torch.where(x > 0, x + 1, x.exp()) for x in (q, k)]
    torch.testing.assert_close([*map(positive_features, (q, k))], features)
    weights = (features[0] @ features[1].mT).tril()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(
        averaged_linear_attention(q, k, v, chunk_size=4), weights @ v
    )
    ones = torch.ones_like(v)
    torch.testing.assert_close(averaged_linear_attention(q, k, ones), ones)


@pytest.mark.parametrize(("gated", "how"), [(True, "autocast"), (False, "bfloat16")])
def test_a_long_sum_grows_in_half_precision_too(gated: bool, how: str) -> None:
    """The same token 700 times: in eight bits, a sum stops growing at about 256."""
    layer = LinearAttention(d_model=12, num_heads=2, gated=gated, chunk_size=1)
    x = torch.randn(1, 1, 12).bfloat16().float()
    if gated:  # gates that forget little
        torch.nn.init.constant_(layer.gate_proj.bias, 8.0)
    if how == "bfloat16":
        layer, x = layer.bfloat16(), x.bfloat16()
    cache = layer.new_cache(1, 700)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, how == "autocast"):
        _, one = layer(x, return_state=True)
        _, state = layer(x.expand(1, 700, 12), return_state=True)
        for _ in range(700):
            layer(x, cache=cache)
    assert one.dtype == state.dtype == torch.float32
    torch.testing.assert_close(state, 700 * one, rtol=0.02, atol=0)
    torch.testing.assert_close(cache.state, state, rtol=1e-3, atol=0)
    room = torch.zeros(1, 2, 6, 6)
    assert layer.new_cache(1, 700).nbytes == cache.nbytes == room.nbytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.ones(3, 4)}, r"q must be \(B, H, T, d_k\), T > 0; it is \(3, 4\)"),
        ({"q": torch.ones(2, 3, 0, 5)}, r"T > 0; it is \(2, 3, 0, 5\)"),
        ({"k": torch.ones(2, 3, 11, 4)}, r"k must be \(2, 3, 11, 5\), like q; it is"),
        ({"v": torch.ones(2, 3, 10, 7)}, r"v must be \(2, 3, 11, d_v\); it is"),
        ({"state": torch.ones(2, 3, 7, 5)}, r"state must be \(2, 3, 5, 7\); it is"),
        ({"state": (1, 2)}, r"state must be a tensor, \(2, 3, 5, 7\); it is a tuple"),
        ({"log_decay": torch.ones(2, 3, 11)}, r"log_decay must be \(2, 3, 11, 5\), or"),
        ({"k": torch.ones(2, 3, 11, 5).half()}, "q, k and v must have one dtype: q is"),
        (
            dict.fromkeys("qkv", torch.ones(2, 3, 11, 5).long()),
            "must be floating-point",
        ),
    ],
)
@pytest.mark.usefixtures("as_a_caller")
def test_what_does_not_fit_is_named(change: dict, message: str):
    q, v = torch.ones(B, H, T, D_K), torch.ones(B, H, T, D_V)
    inputs = {"q": q, "k": q, "v": v} | change
    for form in (recurrent_linear_attention, *FORMS.values()):
        with pytest.raises((TypeError, ValueError), match=message):
            form(**inputs)
    if change.keys() <= {"q", "k", "v"}:
        with pytest.raises((TypeError, ValueError), match=message):
            averaged_linear_attention(**inputs)


def test_a_chunk_has_a_token():
    q = torch.ones(B, H, T, D_K)
    with pytest.raises(ValueError, match="chunk_size=0 must be positive"):
        chunked_linear_attention(q, q, q, chunk_size=0)
    with pytest.raises(ValueError, match="chunk_size=0 must be positive"):
        LinearAttention(d_model=4, num_heads=2, chunk_size=0)
