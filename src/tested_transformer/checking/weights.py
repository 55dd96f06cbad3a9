"""Replace weights that hide mistakes: zeros, ones, copies and tiny matrices.

After a projection of zeros every output is right, and equal projections can be mixed up
without effect. Such weights are drawn again before a layer is checked.
"""

import torch
from torch import Tensor, nn

__all__ = ["draw_anew"]

# A matrix is tiny if it shrinks a random vector to less than this part of its size.
_SMALL = 0.1
# The standard deviation of vectors drawn around their old value, relative to it.
_SPREAD = 0.3


def draw_anew(module: nn.Module) -> tuple[str, ...]:
    """Draw new values, in place, for weights that would hide a mistake.

    These are constant weights, weights with two equal rows or columns, copies of other
    weights, and matrices so small that scores do not matter. A constant vector, such as
    the ones of a norm, becomes numbers around the constant; zeros become small numbers.

    Returns:
        The names of the matrices among them, except the tiny ones.
    """
    generator = torch.Generator().manual_seed(11)
    seen: list[Tensor] = []
    names: list[str] = []
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if not weight.is_floating_point() or not weight.numel():
                continue
            repeats = any(torch.equal(weight, each) for each in seen)
            tiny = _is_tiny(weight)
            if repeats or tiny or _hides(weight):
                drawn = torch.randn(
                    weight.shape, generator=generator, dtype=torch.float64
                )
                weight.copy_(_around(weight, drawn))
                names += [name] * (weight.ndim > 1 and not tiny)
            seen.append(weight)
    return tuple(names)


def _columns(weight: Tensor) -> int:
    """Return how many terms each number of a product with a weight has."""
    shape = [each for each in weight.shape if each > 1]
    return shape[-1] if shape else 1


def _is_tiny(weight: Tensor) -> bool:
    """Return whether a matrix is tiny, but not zero."""
    if weight.ndim < 2 or not weight.any():
        return False
    # Ignore the kernel axes of a convolution, which have size one.
    least = min((each for each in weight.shape if each > 1), default=1)
    return bool(weight.square().mean().sqrt() * least**0.5 < _SMALL)


def _hides(weight: Tensor) -> bool:
    if weight.numel() == 1:
        return not weight.any()
    if weight.ndim < 2:
        return bool((weight == weight[0]).all())
    matrix = weight.flatten(1)
    return any(
        len(each) > 1 and len(each.unique(dim=0)) < len(each)
        for each in (matrix, matrix.mT)
    )


def _around(weight: Tensor, drawn: Tensor) -> Tensor:
    """Scale random numbers to the usual size of such a weight."""
    if weight.ndim > 1:
        return drawn * _columns(weight) ** -0.5
    if weight.numel() == 1:
        return torch.ones_like(drawn)
    first = weight.flatten()[0]
    return first + _SPREAD * drawn * (first.abs() if first else 1.0)
