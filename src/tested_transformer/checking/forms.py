"""What correct attention may have inside: positions, norms, a window, a scale.

A ``Form`` describes it in a few values. Wrapped around the steps of attention, it makes
the oracle of a layer that has them. Known bugs can be put on top of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tested_transformer.cache import LayerCache
from tested_transformer.checking.exhibits.exhibit import Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps

__all__ = [
    "LOWEST",
    "ROUNDING",
    "Form",
    "FormedAttention",
    "Norm",
    "Norms",
    "Rotary",
    "alibi_slopes_of",
    "placed",
]

_Heads = Float[Tensor, "B H T d_k"]
# Stands for the lowest number of whatever dtype the scores have.
LOWEST = torch.finfo(torch.float64).min
# The largest relative gap between outputs if a constant is in single precision.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """How queries and keys are rotated by their positions.

    Args:
        pairing: ``halves`` or ``neighbors``; see ``rotate``.
        base: About how many times slower the slowest pair rotates than the fastest.
        width: How many features of a head are rotated, counted from the first.
        backwards: Whether each pair is rotated the other way.
    """

    pairing: str
    base: float
    width: int
    backwards: bool = False

    def __str__(self) -> str:
        return f"rotary positions ({self.pairing}, base {self.base:g})"

    @property
    def rates(self) -> Tensor:
        """The angle by which each pair rotates from one token to the next."""
        steps = torch.arange(0, self.width, 2, dtype=torch.float64) / self.width
        return (-1 if self.backwards else 1) * self.base**-steps

    def turn(self, x: _Heads, at: Tensor, rates: Tensor | None = None) -> _Heads:
        """Rotate the features of tokens ``at`` these positions."""
        angles = at.to(torch.float64)[..., None] * (
            self.rates if rates is None else rates
        )
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        turned, rest = x[..., : self.width], x[..., self.width :]
        if self.pairing == "halves":
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        pair = [first * cos - second * sin, second * cos + first * sin]
        if self.pairing == "halves":
            return torch.cat([*pair, rest], dim=-1)
        return torch.cat([torch.stack(pair, dim=-1).flatten(-2), rest], dim=-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Norm:
    """How queries, keys or features are normalized.

    Args:
        kind: ``rms``, ``layer`` or ``group``.
        eps: What is added to the variance before the division.
        weight: The factors, one for each feature of a head or of all heads.
        bias: What is added at the end.
        by_head: Whether each head is normalized by itself.
        groups: The number of groups of features, for ``group``.
    """

    kind: str
    eps: float
    weight: Tensor | None = None
    bias: Tensor | None = None
    by_head: bool = True
    groups: int = 1

    def __call__(self, x: _Heads) -> _Heads:
        """Normalize heads: each by itself, or all heads of a token together."""
        if self.kind == "group":
            given = (
                each.to(x) for each in (self.weight, self.bias) if each is not None
            )
            return F.group_norm(x[:, 0].mT, self.groups, *given, eps=self.eps).mT[
                :, None
            ]
        axes = -1 if self.by_head else (1, 3)
        if self.kind == "layer":
            x = x - x.mean(dim=axes, keepdim=True)
        x = x * (x.square().mean(dim=axes, keepdim=True) + self.eps).rsqrt()
        weight, bias = (self._of_heads(each, x) for each in (self.weight, self.bias))
        x = x if weight is None else x * weight
        return x if bias is None else x + bias

    def _of_heads(self, each: Tensor | None, x: _Heads) -> Tensor | None:
        """Return factors in the shape of heads, repeated if heads share their keys."""
        if each is None or self.by_head:
            return None if each is None else each.to(x)
        heads = each.to(x).unflatten(0, (-1, 1, x.shape[-1]))
        return heads.repeat_interleave(x.shape[1] // len(heads), dim=0)


Norms = tuple[Norm | None, Norm | None]
"""The norm of queries and that of keys."""


def placed(
    form: "Form", q: _Heads, k: _Heads, v: _Heads, queries_at: Tensor, keys_at: Tensor
) -> tuple[_Heads, _Heads, _Heads]:
    """Normalize queries and keys and rotate them, in the order of a form."""
    if form.norms_first:
        q, k = form.normed(q, k)
    if form.rotary is not None:
        q, k = form.rotary.turn(q, queries_at), form.rotary.turn(k, keys_at)
    if not form.norms_first:
        q, k = form.normed(q, k)
    return q, k, v


@dataclass(frozen=True, kw_only=True)
class Form:
    """What attention has inside besides its projections.

    Args:
        rotary: How queries and keys are rotated.
        slopes: What ALiBi subtracts for each step to a key, one number for each head.
        symmetric: Whether ALiBi also applies to keys after the query.
        window: How many tokens a query may read, including itself.
        norms: The norms of queries and of keys.
        norms_first: Whether they are normalized before they are rotated.
        scale: The factor of the scores; by default one over the root of the head width.
        cap: The limit of a soft cap on scores.
        fill: A finite number that forbidden scores are filled with, if any.
        filled_by_adding: Whether ``fill`` is added to the scores instead.
        residual: Whether the layer adds its input to its output.
        before: The norm of the input.
        after: The norm of the output.
        rounded: Whether a constant in it, such as the scale, is in single precision.
        place: Applies norms and positions to queries, keys and values.
    """

    rotary: Rotary | None = None
    slopes: tuple[float, ...] | None = None
    symmetric: bool = False
    window: int | None = None
    norms: Norms | None = None
    norms_first: bool = True
    scale: float | None = None
    cap: float | None = None
    fill: float | None = None
    filled_by_adding: bool = False
    residual: bool = False
    before: Norm | None = None
    after: Norm | None = None
    rounded: bool = False
    place: Callable[..., tuple[Tensor, Tensor, Tensor]] = placed

    def __bool__(self) -> bool:
        """Whether there is anything besides the projections."""
        return self != Form()

    def __str__(self) -> str:
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.rotary is not None:
            yield str(self.rotary)
        if self.slopes is not None:
            yield "ALiBi"
        if self.norms is not None:
            yield "normalized queries and keys"
        if self.window is not None:
            yield f"a window of {self.window}"
        if self.scale is not None:
            yield f"scores times {self.scale:.4g}"
        if self.cap is not None:
            yield f"scores kept below {self.cap:g}"
        if self.residual:
            yield "its features added to the output"
        if self.before is not None or self.after is not None:
            yield "a norm around it"
        if self.rounded:
            yield "a constant in single precision"

    @property
    def slack(self) -> float:
        """The least tolerance of comparisons: tables and constants may be rounded."""
        if self.rotary is not None or self.slopes is not None:
            return 1e-5
        return ROUNDING if self.rounded else 0.0

    @property
    def knows_order(self) -> bool:
        """Whether the order of the tokens that a query reads matters."""
        return any(each is not None for each in (self.rotary, self.slopes, self.window))

    def normed(self, q: _Heads, k: _Heads) -> tuple[_Heads, _Heads]:
        """Normalize queries and keys, if the form has norms for them."""
        queries, keys = self.norms or (None, None)
        return queries(q) if queries else q, keys(k) if keys else k

    def around(self, steps: Steps) -> Steps:
        """Return the steps of attention with this form around them."""
        whole = replace(
            steps,
            attend=partial(_attend, self, steps.attend),
            allow=partial(_allow, self, steps.allow),
        )
        if self.cap is None and self.slopes is None and self.fill is None:
            return whole
        return replace(whole, weigh=partial(_weigh, self, steps.weigh))


# Not inside a method, which would define them again for each form that is tried.
def _attend(
    form: Form,
    attend: Callable[..., Any],
    layer: Any,
    q: _Heads,
    k: _Heads,
    v: _Heads,
    mask: Tensor | None,
) -> Any:
    keys_at = torch.arange(k.shape[-2])
    queries_at = keys_at[len(keys_at) - q.shape[-2] :]
    q, k, v = form.place(form, q, k, v, queries_at, keys_at)
    if form.scale is not None:
        q = q * (form.scale * q.shape[-1] ** 0.5)
    return attend(layer, q, k, v, mask)


def _weigh(
    form: Form, weigh: Callable[..., Any], scores: Tensor, mask: Tensor | None
) -> Tensor:
    if form.cap is not None:
        scores = form.cap * (scores / form.cap).tanh()
    scores = scores + _bias(form, scores)
    if form.fill is None or mask is None:
        return weigh(scores, mask)
    fill = torch.finfo(scores.dtype).min if form.fill == LOWEST else form.fill
    if form.filled_by_adding:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, fill)
        return weigh(scores, None)
    return weigh(scores.masked_fill(~mask, fill), None)


def _allow(
    form: Form,
    allow: Callable[..., Any],
    layer: Any,
    queries: int,
    keys: int,
    mask: Tensor | None,
) -> Tensor | None:
    allowed = allow(layer, queries, keys, mask)
    if form.window is None:
        return allowed
    near = torch.ones(queries, keys, dtype=torch.bool)
    near = near.triu(keys - queries - form.window + 1)
    return near if allowed is None else near & allowed


def _bias(form: Form, scores: Tensor) -> Tensor:
    if form.slopes is None:
        return scores.new_zeros(())
    keys_at = torch.arange(scores.shape[-1])
    steps = keys_at - keys_at[len(keys_at) - scores.shape[-2] :, None]
    steps = -steps.abs() if form.symmetric else steps
    return scores.new_tensor(form.slopes)[:, None, None] * steps


class FormedAttention(ExchangeableAttention):
    """Attention with exchangeable steps and a form."""

    form = Form()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend, with the residual and the outer norms of the form."""
        form = self.form
        inside = x if form.before is None else form.before(x[:, None])[:, 0]
        output = super().forward(inside, mask=mask, causal=causal, cache=cache)
        assert isinstance(output, Tensor)
        if form.residual:
            output = x + output
        return output if form.after is None else form.after(output[:, None])[:, 0]

    def take(self, form: Form | None = None, exhibit: Exhibit | None = None) -> None:
        """Set the form, and replace a step by the one of an exhibit, if given."""
        self.form = self.form if form is None else form
        meant, steps = self.form, Steps()
        if exhibit is not None and exhibit.step == "form":
            meant = exhibit.function(meant)
        elif exhibit is not None:
            steps = exhibit.steps
        self.steps = steps if meant == Form() else meant.around(steps)


def alibi_slopes_of(num_heads: int) -> Iterator[tuple[float, ...]]:
    """Yield the sets of ALiBi slopes in use for a number of heads."""

    def slopes(count: int) -> list[float]:
        return [2 ** (-8 * head / count) for head in range(1, count + 1)]

    yield tuple(slopes(num_heads))
    power = 2 ** (num_heads.bit_length() - 1)
    if power != num_heads:
        # In the paper's code and MPT, the rest is every other slope of twice as many.
        yield (*slopes(power), *slopes(2 * power)[0::2][: num_heads - power])
