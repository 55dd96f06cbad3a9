"""What the checks have in common: what they ask with, and when two answers agree."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer.checking.subject import Subject

__all__ = ["TOLERANCE", "NotApplicableError", "close", "left_padding", "sample"]

# Pairwise different, and different from any usual number of heads.
_BATCH, _LENGTH = 3, 7
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 6e-2,
    torch.float16: 1e-2,
}


class NotApplicableError(Exception):
    """A check cannot be put to a subject."""


def sample(subject: Subject, seed: int = 0) -> Float[Tensor, "B T D"]:
    """Draw a batch of sequences for a subject."""
    generator = torch.Generator().manual_seed(seed)
    shape = _BATCH, _LENGTH, subject.width
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(
        subject.dtype
    )


def close(
    subject: Subject, one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"]
) -> Bool[Tensor, ""]:
    """Say whether two outputs are equal up to rounding. Nothing is equal to NaN."""
    one, other = one.detach().double(), other.detach().double()
    tolerance = TOLERANCE[subject.dtype] * (1 + other.abs().max())
    return ((one - other).abs() <= tolerance).all()


def left_padding(x: Float[Tensor, "B T D"]) -> Bool[Tensor, "B T"]:
    """Say which tokens are real if each sequence has two less than the one before."""
    lengths = torch.arange(x.shape[1], 0, -2)[: len(x), None]
    return torch.arange(x.shape[1]) >= x.shape[1] - lengths
