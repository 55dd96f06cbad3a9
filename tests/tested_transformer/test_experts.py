"""Experts against a loop over tokens, and their balance by hand."""

import copy

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tested_transformer.experts import MixtureOfExperts, count_parameters

# Pairwise different: batch, positions, width, experts; two of them a token.
B, T, D, E, D_FF = 2, 3, 4, 5, 7


def one_by_one(layer: MixtureOfExperts, x: Tensor) -> Tensor:
    """Send each token alone through the experts that the router scores highest."""
    rows = []
    for token in x.reshape(-1, D):
        scores = layer.router.weight @ token
        best = scores.argsort(descending=True)[: layer.experts_per_token]
        shares = scores[best].softmax(0) if len(best) > 1 else scores.softmax(0)[best]
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
    inputs = [x, *layer.parameters()]
    assert_alike(layer(x), one_by_one(layer, x), inputs, close=1e-5)


def test_active_parameters_are_those_that_a_token_meets():
    expert = 2 * D * D_FF + D_FF + D
    for met in (1, 2, E):
        layer = MixtureOfExperts(
            d_model=D, num_experts=E, experts_per_token=met, d_ff=D_FF
        )
        assert count_parameters(layer) == D * E + E * expert
        assert count_parameters(layer, active=True) == D * E + met * expert
        # The same by looking: parameters that get a gradient from a single token.
        layer(torch.randn(1, D)).sum().backward()
        active = sum(p.numel() for p in layer.parameters() if p.grad.any())
        assert count_parameters(layer, active=True) == active


def test_it_can_be_copied_after_a_pass():
    layer = MixtureOfExperts(d_model=D, num_experts=E)
    assert layer.balance_loss == 0
    layer(torch.randn(T, D))
    twin = copy.deepcopy(layer)
    assert twin.balance_loss.item() == layer.balance_loss.item()
    assert layer.balance_loss.requires_grad
    assert not twin.balance_loss.requires_grad


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
    # Two go to the first by a hair, one wholly to the second: an uneven load can be
    # less than 1, here 2 * (2/3 * 1.02/3 + 1/3 * 1.98/3).
    almost = float(torch.tensor(0.51 / 0.49).log())
    layer(torch.tensor([[almost, 0.0], [almost, 0.0], [0.0, 99.0]]))
    assert layer.balance_loss.item() == pytest.approx(0.89333, abs=1e-5)
    # Where each token goes to both, they are used alike.
    layer.experts_per_token = 2
    layer(torch.randn(3, 2))
    assert layer.balance_loss.item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("num_experts", "experts_per_token", "message"),
    [
        (0, 1, "num_experts=0 must be positive"),
        (3, 4, "experts_per_token=4 must lie between 1 and num_experts=3"),
    ],
)
def test_bad_settings_are_named(num_experts: int, experts_per_token: int, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        MixtureOfExperts(
            d_model=D, num_experts=num_experts, experts_per_token=experts_per_token
        )


def test_probabilities_are_at_least_as_precise_as_a_float():
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        layer = MixtureOfExperts(d_model=6, num_experts=5).to(dtype)
        probabilities, _, _ = layer.route(torch.ones(2, 6, dtype=dtype))
        assert probabilities.dtype == torch.promote_types(dtype, torch.float32)


def test_it_is_the_same_in_a_functional_gradient():
    layer = MixtureOfExperts(d_model=D, num_experts=E, d_ff=D_FF)
    weights = dict(layer.named_parameters())
    x = torch.randn(B, T, D)

    def total(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, weights, x).square().sum()

    gradients = torch.func.grad(total)(weights)
    total(weights).backward()
    for name, weight in weights.items():
        torch.testing.assert_close(gradients[name], weight.grad)


@pytest.mark.parametrize("where", ["meta", "fake"])
@pytest.mark.usefixtures("as_a_caller")
def test_it_is_made_and_run_without_numbers(where: str):
    with torch.device("meta") if where == "meta" else FakeTensorMode():
        mixture = MixtureOfExperts(d_model=6, num_experts=5)
        output = mixture(torch.randn(2, 3, 6))
    assert output.shape == (2, 3, 6)
    assert mixture.balance_loss.shape == ()
