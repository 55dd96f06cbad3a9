"""Find out which tokens affect which rows of the output, and how."""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tested_transformer.checking.checks import close, sample
from tested_transformer.checking.naming import own_name
from tested_transformer.checking.subject import Subject

__all__ = ["is_constant", "reads", "takes_softmax", "unreached"]

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


def unreached(subject: Subject) -> tuple[list[str], list[str]]:
    """Return the parameters without effect, and those with one but no gradient.

    They have the names that they have in the user's code. The projections around a
    function stand for its queries, keys and values.
    """
    module = subject.module
    if module is None:
        return [], []
    named = {
        name: each
        for name, each in module.named_parameters()
        if each.is_floating_point()
    }
    parameters = [each.requires_grad_() for each in named.values()]
    output = subject.run(sample(subject))
    if not parameters or not output.requires_grad:
        return [], []
    slopes = torch.autograd.grad(output.sum(), parameters, allow_unused=True)
    groups: dict[str, list[str]] = {}
    for name, each in zip(named, slopes, strict=True):
        if each is None:
            # A bias of keys has no effect by itself, so change it with its weight.
            groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    idle, cut = list[str](), list[str]()
    for group in groups.values():
        kept = [named[name].detach().clone() for name in group]
        with torch.no_grad():
            for name, old in zip(group, kept, strict=True):
                named[name].copy_(2 * old + 1)
            changed = not _same(subject, subject.run(sample(subject)), output)
            for name, old in zip(group, kept, strict=True):
                named[name].copy_(old)
        (cut if changed else idle).extend(own_name(module, name) for name in group)
    return [*dict.fromkeys(filter(None, idle))], [*dict.fromkeys(filter(None, cut))]


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
