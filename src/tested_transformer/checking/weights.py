"""Weights that hide mistakes: zeros, ones, copies, and what is nearly zero.

Behind a projection of zeros everything is right, and with equal projections it does not
matter which is taken for which. Such weights are drawn anew before a layer is asked.
"""

import torch
from torch import Tensor, nn

__all__ = ["draw_anew"]

# Of a matrix, the size of what it makes of a random vector of size one.
_SMALL = 0.1
_SPREAD = 0.3


def draw_anew(module: nn.Module) -> tuple[str, ...]:
    """Draw the weights anew that would hide a mistake, in place.

    They are those that are constant, that repeat a row, a column or another weight, and
    matrices so small that the scores do not matter. Ones become numbers around one, as
    in norms, and zeros small numbers.

    Returns:
        The names of the matrices among them that let nothing through.
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
    """Return how many numbers each number of a product is made of."""
    shape = [each for each in weight.shape if each > 1]
    return shape[-1] if shape else 1


def _is_tiny(weight: Tensor) -> bool:
    """Return whether a matrix lets something through, but next to nothing."""
    if weight.ndim < 2 or not weight.any():
        return False
    # A convolution of one place has axes of one, too.
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
    """Scale what was drawn for a weight to what such a weight usually is."""
    if weight.ndim > 1:
        return drawn * _columns(weight) ** -0.5
    if weight.numel() == 1:
        return torch.ones_like(drawn)
    first = weight.flatten()[0]
    return first + _SPREAD * drawn * (first.abs() if first else 1.0)
