"""Two ways to compute one thing, beside each other: their outputs and gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor


def assert_alike(
    output: Tensor | Sequence[Tensor],
    expected: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor],
    others: Sequence[Tensor] | None = None,
    *,
    close: float | None = None,
    note: object = None,
) -> None:
    """Compare outputs, and what they pass back along one random direction.

    Args:
        output: What is tested: a tensor, or several of the same length as
            ``expected``.
        expected: What it must be.
        inputs: The tensors whose gradients are compared.
        others: Those of ``expected``, in the same order, if they are not the same.
        close: How far outputs may be off, absolutely and relatively. Gradients, which
            are longer sums, may be off ten times as far. ``None`` is PyTorch's limit
            for the dtype.
        note: What stands before the message if they differ, such as the case.
    """
    ways = [[way] if isinstance(way, Tensor) else [*way] for way in (output, expected)]
    directions = [torch.randn_like(tensor) for tensor in ways[1]]
    gradients = [
        torch.autograd.grad(
            way,
            tensors,
            directions,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        for way, tensors in zip(ways, (inputs, others or inputs), strict=True)
    ]
    for pair, limit in ((ways, close), (gradients, close and 10 * close)):
        torch.testing.assert_close(
            *map(list, pair),
            rtol=limit,
            atol=limit,
            msg=None if note is None else lambda text: f"{note}: {text}",
        )
