"""Who reads whom, and how: which rows move when one token is changed, and by what."""

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
    """Return for each row of the output which tokens move it.

    A row of NaN that stays NaN has not moved.

    Args:
        subject: What to ask.
        causal: Whether later positions are forbidden.
        real: Which tokens are no padding, in all sequences.
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
    """Return whether its output is the same, and finite, whatever it is given."""
    one, other = (subject.run(sample(subject, seed)) for seed in (0, 1))
    return bool(one.isfinite().all()) and torch.equal(one, other)


def unused(subject: Subject) -> list[str]:
    """Return the names of the parameters that take no part in the output."""
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
    """Return whether it computes a softmax, or exponentials that it may be made of."""
    with _Operations() as operations:
        subject.run(sample(subject))
    return any(word in name for name in operations.names for word in _EXPONENTIAL)


class _Operations(TorchDispatchMode):
    """Writes down what is computed."""

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
