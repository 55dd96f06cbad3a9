"""The feed-forward: what each position does with what it has gathered."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["ACTIVATIONS", "FeedForward"]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class _ReluSquared(torch.autograd.Function):
    """Squared ReLU with its gradient written out, which is twice as fast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        (gradient,), (positive,) = grad_outputs, ctx.saved_tensors
        return (gradient * positive).mul_(2)


def _relu_squared(x: Tensor) -> Tensor:
    return _ReluSquared.apply(x)


# --8<-- [start:activations]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": F.relu,
    "relu2": _relu_squared,
    "silu": F.silu,
    "swiglu": F.silu,  # of a gate that is multiplied with what passes it
}
# --8<-- [end:activations]


# --8<-- [start:feed-forward]
class FeedForward(nn.Module):
    """Widen each position's features, bend them, and bring them back.

    Args:
        d_model: D, the width of input and output.
        d_ff: The width in between; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``. ``swiglu`` has a third matrix, ``gate``.
        bias: Whether the matrices add a bias.

    Raises:
        ValueError: If a width is not positive, or ``activation`` is unknown.

    Sources: Vaswani et al., 2017, "Attention Is All You Need", section 3.3; for
    ``swiglu`` Shazeer, 2020, "GLU Variants Improve Transformer".
    """

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        _check_settings(d_model, d_ff, activation)
        self.activation = ACTIVATIONS[activation]
        gated = activation == "swiglu"
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if gated else None
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Treat each position by itself; no position sees another."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


# --8<-- [end:feed-forward]


def _check_settings(d_model: int, d_ff: int, activation: str) -> None:
    if d_model < 1 or d_ff < 1:
        raise ValueError(f"d_model={d_model} and d_ff={d_ff} must be positive")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"activation={activation!r} must be one of {known}")
