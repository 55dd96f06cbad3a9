"""The shortest sequence that exposes a mistake: what a token gets, and should get."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tested_transformer.checking.checks import (
    LENGTH,
    NotApplicableError,
    Oracle,
    answers,
    close,
    oracles,
    sample,
)
from tested_transformer.checking.exhibits.layer import ExchangeableAttention
from tested_transformer.checking.subject import Subject

__all__ = ["Counterexample", "find_counterexample"]


@dataclass(frozen=True)
class Counterexample:
    """One number of the output that is not what it should be.

    Args:
        x: The input, (1, T, D).
        way: How the layer was called: ``causal``, ``unmasked`` or ``cross``.
        token: The index of the token.
        feature: The index of the feature.
        came: The number that came out.
        wanted: The number that should have come out.
        because: Where ``wanted`` comes from, in words that stand before it.
        head: The head that is wrong, if only one is.
    """

    x: Tensor
    way: str
    token: int
    feature: int
    came: float
    wanted: float
    because: str
    head: int | None = None

    def __str__(self) -> str:
        count = self.x.shape[1]
        head = "" if self.head is None else f"; head {self.head} alone is wrong"
        return (
            f"smallest case, {self.way}: of {count} token{'s' * (count > 1)}, "
            f"token {self.token} gets {self.came:.4g} in feature {self.feature}, "
            f"{self.because} {self.wanted:.4g}{head}"
        )


def find_counterexample(
    subject: Subject, failed: Collection[str] = ("output", "leak")
) -> Counterexample | None:
    """Return the shortest sequence whose output is wrong, if one is found.

    Args:
        subject: What fails a check.
        failed: The checks that failed. If ``output`` did, the output is compared with
            an oracle's; if ``leak`` did, with that after a change of the last token.
    """
    compared: list[Counterexample | None] = []
    if "output" in failed:
        with suppress(NotApplicableError):
            compared = [_with_oracle(subject, each) for each in oracles(subject)]
    if compared and None not in compared:
        # The oracle that agrees with the layer for longest is probably the right one.
        return max(filter(None, compared), key=lambda each: each.x.shape[1])
    return _with_another_future(subject) if "leak" in failed else None


def _with_oracle(subject: Subject, oracle: Oracle) -> Counterexample | None:
    for length in range(1, LENGTH + 1):
        x = sample(subject)[:1, :length]
        for way, got, right in answers(subject, oracle, x):
            if not close(subject, got, right, subject.slack):
                found = _first_apart(subject, x, way, got, right, "attention gives")
                apart = (got.double() - right).detach()[0, found.token]
                return replace(found, head=_only_head(oracle, apart))
    return None


def _with_another_future(subject: Subject) -> Counterexample | None:
    for length in range(2, LENGTH + 1):
        x, other = (sample(subject, seed)[:1, :length] for seed in (0, 1))
        changed = torch.cat([x[:, :-1], other[:, -1:]], dim=1)
        got, right = subject.run(x)[:, :-1], subject.run(changed)[:, :-1]
        if not close(subject, got, right):
            because = f"with token {length - 1} changed"
            return _first_apart(subject, x, "causal", got, right, because)
    return None


def _first_apart(
    subject: Subject, x: Tensor, way: str, got: Tensor, right: Tensor, because: str
) -> Counterexample:
    rows = range(got.shape[1])
    token = next(t for t in rows if not close(subject, got[:, t], right[:, t]))
    apart = (got - right).detach()[0, token].abs()
    feature = int(apart.nan_to_num(torch.inf).argmax())
    came, wanted = (each[0, token, feature].item() for each in (got, right))
    return Counterexample(x, way, token, feature, came, wanted, because)


def _only_head(oracle: Oracle, apart: Tensor) -> int | None:
    """Return the only head that differs, given the difference of the outputs."""
    if not isinstance(oracle, ExchangeableAttention) or oracle.num_heads == 1:
        return None
    if not apart.isfinite().all():
        return None
    weight = oracle.o_proj.weight.detach()
    heads = torch.linalg.lstsq(weight, apart[:, None]).solution
    size = heads.view(oracle.num_heads, -1).abs().amax(dim=1)
    wrong = (size > 1e-6 * size.max()).nonzero().flatten().tolist()
    return wrong[0] if len(wrong) == 1 else None
