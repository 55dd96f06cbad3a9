"""Muon: a step that turns a matrix in all directions by the same amount."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.training.distributed import gathered, share_of

__all__ = ["Muon", "orthogonalize", "orthogonalize_on_short_side"]

# The odd polynomial of degree 5 that Jordan et al. found to be steep at 0 and to keep
# [0, 1] near 1: a small singular value is more than tripled by every round.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)

# How many matrices a CPU orthogonalizes together.
_FEW = 4


# --8<-- [start:orthogonalize]
def orthogonalize(
    matrices: Float[Tensor, "*batch rows columns"], *, rounds: int = 5
) -> Float[Tensor, "*batch rows columns"]:
    """Bring all singular values near 1, and leave the singular vectors as they are.

    A polynomial in the singular values needs no decomposition, only products: with
    ``X = U S V'``, the matrix ``(a I + b X X' + c (X X')²) X`` is
    ``U (a S + b S³ + c S⁵) V'``. Five rounds of one that is steep at 0 bring values
    between 0.002 and 1 of the whole into [0.68, 1.21], which is as good here as 1.

    Args:
        matrices: What to orthogonalize, many matrices of one shape at a time.
        rounds: How often the polynomial is applied.

    Source: Jordan et al., 2024, "Muon: An optimizer for hidden layers".
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    # The products are cheaper on the short side.
    x = matrices.mT if tall else matrices
    # No singular value is longer than all of the matrix.
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(rounds):
        x = _polynomial(x @ x.mT) @ x
    return x.mT if tall else x


def _polynomial(square: Tensor) -> Tensor:
    """Give ``a I + b S + c S²``."""
    a, b, c = _COEFFICIENTS
    result = (square @ square).mul_(c).add_(square, alpha=b)
    result.diagonal(dim1=-2, dim2=-1).add_(a)
    return result


# --8<-- [end:orthogonalize]


# --8<-- [start:short]
def orthogonalize_on_short_side(
    matrices: Float[Tensor, "*batch rows columns"], *, rounds: int = 5
) -> Float[Tensor, "*batch rows columns"]:
    """Do what ``orthogonalize`` does, with all but two products on the short side.

    Each round multiplies ``X`` by a polynomial ``P`` in ``X X'``, which is square. So
    ``X X'`` becomes ``P X X' P``, the factors gather in ``Q``, and the matrix itself
    is needed at the beginning and at the end. With one side four times the other,
    that is 25 products of the short side's size instead of 45.

    Singular values are squared on the way: in float32 that is wrong by one in a
    thousand at worst, and bfloat16 will not do.

    Args:
        matrices: What to orthogonalize, many matrices of one shape at a time.
        rounds: How often the polynomial is applied; at least once.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    square = x @ x.mT
    factors = factor = _polynomial(square)
    for _ in range(rounds - 1):
        square = factor @ square @ factor
        factor = _polynomial(square)
        factors = factor @ factors
    x = factors @ x
    return x.mT if tall else x


# --8<-- [end:short]


# --8<-- [start:muon]
class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized; for the matrices inside a network.

    A gradient is mostly a few directions: its singular values fall off steeply. What
    is small in it is not less worth learning. Orthogonalized, all directions count
    alike.

    ``torch.optim.Muon`` does the same, in bfloat16 and one matrix after the other. On
    a CPU that takes five times as long, on a GPU as long as there are matrices.

    Args:
        parameters: The matrices, or groups of them, as for any optimizer.
        lr: The learning rate. A tall matrix learns faster, by the square root of
            rows / columns, so that its outputs change as those of a square one.
        momentum: How much of the running mean of gradients is kept.
        weight_decay: How much of a matrix is lost at each step, times ``lr``.
        rounds: See ``orthogonalize``.

    Raises:
        ValueError: If a parameter is not a matrix.

    Source: Jordan et al., 2024, "Muon: An optimizer for hidden layers"; for the
    weight decay Liu et al., 2025, "Muon is Scalable for LLM Training".
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rounds: int = 5,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "rounds": rounds,
        }
        super().__init__(parameters, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(
                        f"Muon is for matrices; a parameter is {tuple(parameter.shape)}"
                    )

    @torch.no_grad()
    def step(self) -> None:
        """Change every matrix that has a gradient."""
        for group in self.param_groups:
            stacks: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    # A matrix and its transpose are orthogonalized alike.
                    shape = tuple(sorted(parameter.shape))
                    stacks.setdefault(shape, []).append(parameter)
            for parameters in stacks.values():
                # A GPU likes many at a time; a CPU as many as its cache has room for.
                size = len(parameters) if parameters[0].is_cuda else _FEW
                for first in range(0, len(parameters), size):
                    self._step_together(parameters[first : first + size], group)

    def _step_together(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [each.grad for each in parameters if each.grad is not None]
        means = [self._mean_of(parameter) for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1.0 - group["momentum"])
        # Nesterov's momentum: look one step ahead.
        ahead = torch._foreach_lerp(gradients, means, group["momentum"])
        if group["weight_decay"] > 0.0:
            torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        whole = [gathered(matrix) for matrix in ahead]
        on_gpu = whole[0].is_cuda
        updates = _orthogonalize_together(whole, group["rounds"], on_gpu=on_gpu)
        for parameter, update in zip(parameters, updates, strict=True):
            rows, columns = parameter.shape
            scale = math.sqrt(max(1.0, rows / columns))
            share = share_of(update, parameter)
            parameter.add_(share, alpha=-group["lr"] * scale)

    def _mean_of(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
        return state["mean"]


# --8<-- [end:muon]


def _orthogonalize_together(
    matrices: list[Tensor], rounds: int, *, on_gpu: bool
) -> list[Tensor]:
    """Orthogonalize matrices of one shape, some of them transposed, as one."""
    tall = [matrix.shape[0] > matrix.shape[1] for matrix in matrices]
    wide = [m.mT if t else m for m, t in zip(matrices, tall, strict=True)]
    stack = torch.stack(wide)
    rows, columns = stack.shape[-2:]
    if on_gpu:
        stack = orthogonalize(stack.bfloat16(), rounds=rounds).float()
    elif columns < 2 * rows:  # nearly square: nothing to be had on the short side
        stack = orthogonalize(stack, rounds=rounds)
    else:
        stack = orthogonalize_on_short_side(stack, rounds=rounds)
    return [m.mT if t else m for m, t in zip(stack, tall, strict=True)]
