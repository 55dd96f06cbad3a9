"""Muon: an optimizer whose updates have equal size in all directions of a matrix."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.training.distributed import gathered, share_of

__all__ = ["Muon", "orthogonalize", "orthogonalize_on_short_side"]

# The coefficients of Polar Express: each round applies the odd polynomial of degree 5
# that brings the interval left by the previous rounds, initially [0.001, 1], nearest to
# 1. Further rounds repeat the last polynomial. Dividing by 1.01 keeps rounding errors
# from growing.
_SAFETY = 1.01
_COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
)
_LAST = (1.875, -1.25, 0.375)

# With more rounds, products on the short side alone are too imprecise in float32.
_ROUNDS_ON_SHORT_SIDE = 4

# How many matrices a CPU orthogonalizes together.
_FEW = 4


# --8<-- [start:orthogonalize]
def orthogonalize(
    matrices: Float[Tensor, "*batch rows columns"], *, rounds: int = 4
) -> Float[Tensor, "*batch rows columns"]:
    """Bring all singular values near 1 without changing the singular vectors.

    A polynomial of the singular values needs no decomposition, only products: with
    ``X = U S V'``, the matrix ``(a I + b X X' + c (X X')²) X`` is
    ``U (a S + b S³ + c S⁵) V'``. Each round has its own a, b and c. Singular values
    between 0.001 and 1 times the norm end up in [0.42, 1.57] after four rounds, which
    is good enough here, in [0.84, 1.13] after five, and in [0.99, 1.01] after six.

    Args:
        matrices: One or more matrices of the same shape.
        rounds: How many polynomials to apply, one after the other.

    Sources: Jordan et al., 2024, "Muon: An optimizer for hidden layers"; for the
    coefficients Amsel et al., 2025, "The Polar Express", algorithm 1.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    # The products are cheaper on the short side.
    x = matrices.mT if tall else matrices
    # No singular value exceeds the norm of the matrix.
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for a, b, c in _coefficients(rounds):
        x = _polynomial(x @ x.mT, a, b, c) @ x
    return x.mT if tall else x


def _coefficients(rounds: int) -> list[tuple[float, float, float]]:
    """Return a, b and c of each round."""
    safe = [(a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5) for a, b, c in _COEFFICIENTS]
    return [*safe, *[_LAST] * (rounds - len(safe))][:rounds]


def _polynomial(square: Tensor, a: float, b: float, c: float) -> Tensor:
    """Return ``a I + b S + c S²``."""
    result = (square @ square).mul_(c).add_(square, alpha=b)
    result.diagonal(dim1=-2, dim2=-1).add_(a)
    return result


# --8<-- [end:orthogonalize]


def orthogonalize_on_short_side(
    matrices: Float[Tensor, "*batch rows columns"], *, rounds: int = 4
) -> Float[Tensor, "*batch rows columns"]:
    """Return ``orthogonalize(matrices)``, with all but two products on the short side.

    Each round multiplies ``X`` by ``P``, a polynomial in the square matrix ``X X'``. So
    ``X X'`` becomes ``P X X' P``, the product of all ``P`` is accumulated, and ``X``
    itself is needed only at the beginning and at the end. If one side is four times the
    other, that takes 21 products of the short side's size instead of 36.

    The method squares singular values, and each round magnifies the rounding error of
    small ones. Up to four rounds, entries differ by less than 0.001 in float32; with
    six it would be 0.01, and with ten they can overflow. Beyond four rounds, therefore,
    this is ``orthogonalize`` itself. bfloat16 is never precise enough.

    Args:
        matrices: One or more matrices of the same shape.
        rounds: How many polynomials to apply; at least 1.
    """
    if rounds > _ROUNDS_ON_SHORT_SIDE:
        return orthogonalize(matrices, rounds=rounds)
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    square = x @ x.mT
    first, *others = _coefficients(rounds)
    factors = factor = _polynomial(square, *first)
    for coefficients in others:
        square = factor @ square @ factor
        factor = _polynomial(square, *coefficients)
        factors = factor @ factors
    x = factors @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """An optimizer for the matrices inside a network: orthogonalized momentum.

    A few directions dominate a gradient, since its singular values fall off steeply,
    but the small ones are worth learning too. Orthogonalized, all directions count
    equally.

    ``torch.optim.Muon`` does the same in bfloat16, one matrix after the other. On a CPU
    that takes five times as long; on a GPU its time grows with the number of matrices.

    Args:
        parameters: The matrices, or groups of them, as for any optimizer.
        lr: The learning rate. For a tall matrix it is multiplied by the square root of
            rows / columns, so that its outputs change as much as a square one's.
        momentum: How much of the running mean of gradients is kept.
        weight_decay: The share of a matrix that decays at each step, times ``lr``.
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
        rounds: int = 4,
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
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            stacks: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    # A matrix can be orthogonalized as its transpose.
                    shape = tuple(sorted(parameter.shape))
                    stacks.setdefault(shape, []).append(parameter)
            for parameters in stacks.values():
                # A GPU is fastest with all at once, a CPU with what fits its cache.
                size = len(parameters) if parameters[0].is_cuda else _FEW
                for first in range(0, len(parameters), size):
                    self._step_together(parameters[first : first + size], group)

    def _step_together(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["mean"] = torch.zeros_like(parameter)
        means = [self.state[parameter]["mean"] for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1.0 - group["momentum"])
        # Nesterov's momentum: look one step ahead.
        ahead = torch._foreach_lerp(gradients, means, group["momentum"])
        ahead = [gathered(matrix) for matrix in ahead]
        updates = _orthogonalize_together(
            ahead, group["rounds"], on_gpu=ahead[0].is_cuda
        )
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        # Matrices of one shape or its transpose: those as tall share one factor.
        for tall in (False, True):
            pairs = [
                (parameter, share_of(update, parameter))
                for parameter, update in zip(parameters, updates, strict=True)
                if (update.shape[0] > update.shape[1]) is tall
            ]
            if pairs:
                rows, columns = pairs[0][0].shape
                scale = math.sqrt(rows / columns) if tall else 1.0
                targets, amounts = zip(*pairs, strict=True)
                rate = -group["lr"] * scale
                if isinstance(rate, Tensor):
                    torch._foreach_add_(targets, torch._foreach_mul(amounts, rate))
                else:
                    torch._foreach_add_(targets, amounts, alpha=rate)


def _orthogonalize_together(
    matrices: list[Tensor], rounds: int, *, on_gpu: bool
) -> list[Tensor]:
    """Orthogonalize matrices of one shape, some of them transposed, as one stack."""
    tall = [matrix.shape[0] > matrix.shape[1] for matrix in matrices]
    wide = [m.mT if t else m for m, t in zip(matrices, tall, strict=True)]
    stack = torch.stack(wide)
    rows, columns = stack.shape[-2:]
    if on_gpu:
        stack = orthogonalize(stack.bfloat16(), rounds=rounds).float()
    elif columns < 2 * rows:  # nearly square: the short side saves nothing
        stack = orthogonalize(stack, rounds=rounds)
    else:
        stack = orthogonalize_on_short_side(stack, rounds=rounds)
    return [m.mT if t else m for m, t in zip(stack, tall, strict=True)]
