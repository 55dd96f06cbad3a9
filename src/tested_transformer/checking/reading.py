"""Find out which tokens affect which rows of the output, and how."""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tested_transformer.checking.checks import close, sample
from tested_transformer.checking.naming import own_name
from tested_transformer.checking.subject import Subject

__all__ = [
    "angles_in",
    "is_constant",
    "reads",
    "run_with_scores",
    "scores_of",
    "takes_softmax",
    "unreached",
]

_EXPONENTIAL = re.compile(r"softmax|attention|(^|aten\.)exp_?(\.|$)")


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
    # Only operations show what scripts do, but recording them loads a compiler.
    for recorder in (_Functions(), _Operations()):
        with recorder:
            subject.run(sample(subject))
        if any(map(_EXPONENTIAL.search, recorder.names)):
            return True
    return False


@torch.no_grad()
def scores_of(
    subject: Subject, x: Tensor, num_heads: int, *, causal: bool
) -> Tensor | None:
    """Return the scores (B, H, T, T) that a softmax gets, if their axes can be told.

    Args:
        subject: The attention.
        x: The sequences. Their number, H and T should differ.
        num_heads: H.
        causal: Whether to forbid later positions.
    """
    with _Softened() as softened:
        subject.run(x.to(subject.dtype), causal=causal)
    found, (batch, length) = softened.scores, x.shape[:2]
    if not found or any(each.shape != found[0].shape for each in found):
        return None
    one = torch.stack(found) if len(found) == num_heads > 1 else found[0]
    sizes, wanted = [*one.shape], [batch, num_heads, length, length]
    if one.numel() != batch * num_heads * length**2:
        return None
    if sizes != wanted and sorted(sizes) == sorted(wanted) and len({*sizes}) == 3:
        queries_at = sizes.index(length)
        keys_at = sizes.index(length, queries_at + 1)
        axes = sizes.index(batch), sizes.index(num_heads), queries_at, keys_at
        return one.permute(axes).double()
    if sizes[-2:] != [length, length]:
        return None
    return one.reshape(wanted).double()


@torch.no_grad()
def run_with_scores(run: Callable[[], Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return an output, and all scores that softmaxes got on the way, if any did."""
    with _Softened() as softened:
        output = run()
    found = [each.detach().double().flatten() for each in softened.scores]
    return output, torch.cat(found) if found else None


@torch.no_grad()
def angles_in(subject: Subject) -> list[Tensor]:
    """Return the angles whose sines, cosines or unit vectors are computed in a run."""
    with _Turned() as turned:
        subject.run(sample(subject))
    return turned.angles


class _Functions(TorchFunctionMode):
    """Records the names of the functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


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


class _Softened(TorchFunctionMode):
    """Records the scores that each softmax gets, also inside PyTorch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.scores.append(_scores_in(*args, **kwargs))
        elif getattr(func, "__name__", "") == "softmax":
            scores = args[0] if args else kwargs["input"]
            self.scores.append(scores.clone())
        return func(*args, **kwargs)


class _Turned(TorchFunctionMode):
    """Records each tensor of angles of which a function is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.angles: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("sin", "cos", "polar") and len(args) > (name == "polar"):
            self.angles.append(args[name == "polar"].detach())
        return func(*args, **(kwargs or {}))


def _scores_in(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the scores that PyTorch's attention computes, except for boolean masks."""
    copies = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    key = key.repeat_interleave(copies, dim=-3) if copies > 1 else key
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    added = attn_mask is not None and attn_mask.is_floating_point()
    return scores + attn_mask if added else scores


def _same(subject: Subject, one: Tensor, other: Tensor) -> bool:
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    return bool(close(subject, one.nan_to_num(), other.nan_to_num()))
