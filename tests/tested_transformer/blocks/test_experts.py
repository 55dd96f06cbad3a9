"""Experts against a loop over tokens, and their balance by hand."""

import pytest
import torch
from torch import Tensor

from tested_transformer.blocks import MixtureOfExperts

# Pairwise different: batch, positions, width, experts; two of them a token.
B, T, D, E, D_FF = 2, 3, 4, 5, 7


def one_by_one(layer: MixtureOfExperts, x: Tensor) -> Tensor:
    """Send each token alone through all experts, and keep what the router picks."""
    rows = []
    for token in x.reshape(-1, D):
        scores = layer.router.weight @ token
        order = sorted(range(len(scores)), key=lambda e: -scores[e].item())
        best = order[: layer.experts_per_token]
        shares = torch.stack([scores[e] for e in best]).softmax(0)
        rows.append(
            sum(s * layer.experts[e](token) for s, e in zip(shares, best, strict=True))
        )
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("experts_per_token", [1, 2, E])
def test_it_is_a_loop_over_tokens(experts_per_token: int):
    layer = MixtureOfExperts(
        d_model=D, num_experts=E, experts_per_token=experts_per_token, d_ff=D_FF
    )
    x = torch.randn(B, T, D, requires_grad=True)
    output, expected = layer(x), one_by_one(layer, x)
    torch.testing.assert_close(output, expected)
    direction = torch.randn(B, T, D)
    wanted = [x, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad(
            output, wanted, direction, materialize_grads=True, allow_unused=True
        ),
        torch.autograd.grad(
            expected, wanted, direction, materialize_grads=True, allow_unused=True
        ),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_balance_by_hand():
    layer = MixtureOfExperts(d_model=2, num_experts=2, experts_per_token=1)
    with torch.no_grad():
        layer.router.weight.copy_(torch.eye(2))
    ln3 = float(torch.tensor(3.0).log())
    # Each token gives one expert 3/4 and the other 1/4.
    layer(torch.tensor([[ln3, 0.0], [0.0, ln3]]))
    assert layer.balance_loss.item() == pytest.approx(1.0)
    # All go to the first: 2 * (1 * 3/4 + 0 * 1/4).
    layer(torch.tensor([[ln3, 0.0], [ln3, 0.0], [ln3, 0.0]]))
    assert layer.balance_loss.item() == pytest.approx(1.5)


def test_the_balance_teaches_the_router():
    layer = MixtureOfExperts(d_model=D, num_experts=E)
    layer(torch.randn(B, T, D))
    (gradient,) = torch.autograd.grad(layer.balance_loss, layer.router.weight)
    assert gradient.ne(0).any()


@pytest.mark.parametrize(
    ("num_experts", "experts_per_token", "message"),
    [
        (0, 1, "num_experts=0 must be positive"),
        (3, 4, "experts_per_token=4 must lie between 1 and num_experts=3"),
        (3, 0, "experts_per_token=0 must lie between 1 and num_experts=3"),
    ],
)
def test_bad_settings_are_named(num_experts: int, experts_per_token: int, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        MixtureOfExperts(
            d_model=D, num_experts=num_experts, experts_per_token=experts_per_token
        )
