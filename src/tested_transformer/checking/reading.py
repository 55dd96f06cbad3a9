"""Find out which tokens affect which rows of the output, and how."""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tested_transformer.checking.checks import close, sample
from tested_transformer.checking.subject import Subject

__all__ = ["is_constant", "reads", "takes_softmax", "unused"]

_EXPONENTIAL = ("softmax", "attention", "aten.exp.", "aten.exp_.")


def reads(
    subject: Subject, *, causal: bool = True, real: Bool[Tensor, " T"] | None = None
) -> Bool[Tensor, "T S"]:
    """Return which tokens change which rows of the output.

    A row of NaN that stays NaN has not changed.

    Args:
        subject: The attention.
        causal: Whether to forbid later positions.
        real: ``False`` where all sequences have padding.
    """
    x, other = sample(subject), sample(subject, seed=1)
    mask = None if real is None else real.expand(len(x), -1)
    before = subject.run(x, causal=causal, real=mask)
    found: list[Tensor] = []
    for token in range(x.shape[1]):
        changed = x.clone()
        changed[:, token] = other[:, token]
        after = subject.run(changed, causal=causal, real=mask)
        rows = zip(before.unbind(1), after.unbind(1), strict=True)
        found.append(torch.tensor([not _same(subject, *each) for each in rows]))
    return torch.stack(found, dim=1)


def is_constant(subject: Subject) -> bool:
    """Return whether the output is finite and does not depend on the input."""
    one, other = (subject.run(sample(subject, seed)) for seed in (0, 1))
    return bool(one.isfinite().all()) and torch.equal(one, other)


def unused(subject: Subject) -> list[str]:
    """Return the names of the parameters without effect on the output."""
    if subject.module is None:
        return []
    named = {
        name: each
        for name, each in subject.module.named_parameters()
        if each.is_floating_point()
    }
    parameters = [each.requires_grad_() for each in named.values()]
    output = subject.run(sample(subject)).sum()
    if not parameters or not output.requires_grad:
        return []
    slopes = torch.autograd.grad(output, parameters, allow_unused=True)
    return [name for name, each in zip(named, slopes, strict=True) if each is None]


def takes_softmax(subject: Subject) -> bool:
    """Return whether it computes a softmax, or exponentials that may form one."""
    with _Operations() as operations:
        subject.run(sample(subject))
    return any(word in name for name in operations.names for word in _EXPONENTIAL)


class _Operations(TorchDispatchMode):
    """Records the names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def _same(subject: Subject, one: Tensor, other: Tensor) -> bool:
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    return bool(close(subject, one.nan_to_num(), other.nan_to_num()))
