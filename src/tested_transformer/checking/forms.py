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

from tested_transformer.attention import attention_weights
from tested_transformer.cache import LayerCache
from tested_transformer.checking.exhibits.exhibit import Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps

__all__ = [
    "LOWEST",
    "ROUNDING",
    "Added",
    "Factor",
    "Form",
    "FormedAttention",
    "Gate",
    "Mixing",
    "Norm",
    "Norms",
    "Rotary",
    "Terms",
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Added:
    """A table of positions that is added to the features.

    Args:
        table: A row for each position.
    """

    table: Float[Tensor, "L D"]

    def __call__(self, x: _Heads) -> _Heads:
        """Add the first rows of the table to the tokens."""
        return x + self.table[: x.shape[-2]].to(x)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factor:
    """A learned factor of each feature.

    Args:
        weight: The factors.
    """

    weight: Float[Tensor, " D"]

    def __call__(self, x: _Heads) -> _Heads:
        """Multiply the features."""
        return x * self.weight.to(x)


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """What is added to scores and values for each pair of a query and a key.

    Args:
        of_queries: For each head and pair, what is multiplied by the query.
        of_keys: The same for the key.
        alone: What is added to the score as it is.
        of_values: What is added to the value.
    """

    of_queries: Float[Tensor, "H T S d_k"]
    of_keys: Float[Tensor, "H T S d_k"]
    alone: Float[Tensor, "H T S"]
    of_values: Float[Tensor, "H T S d_k"] | None = None

    def __bool__(self) -> bool:
        """Whether it adds anything to the scores."""
        parts = self.of_queries, self.of_keys, self.alone
        return any(bool(each.abs().max() > ROUNDING) for each in parts)

    def scores(self, q: _Heads, k: _Heads) -> Float[Tensor, "B H T S"]:
        """Return what is added to the scores of the last queries."""
        at, to = slice(k.shape[-2] - q.shape[-2], k.shape[-2]), slice(k.shape[-2])
        added = torch.einsum("bhtd,htsd->bhts", q, self.of_queries[:, at, to].to(q))
        added = added + torch.einsum(
            "bhsd,htsd->bhts", k, self.of_keys[:, at, to].to(k)
        )
        return added + self.alone[:, at, to].to(q)

    def values(self, weights: Float[Tensor, "B H T S"]) -> _Heads | float:
        """Return what is added to the heads' outputs."""
        if self.of_values is None:
            return 0.0
        queries, keys = weights.shape[-2:]
        added = self.of_values[:, keys - queries : keys, :keys].to(weights)
        return torch.einsum("bhts,htsd->bhtd", weights, added)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gate:
    """A function of the features by which the heads' outputs are multiplied.

    Args:
        kind: The function after the projection: ``sigmoid`` or ``silu``.
        weight: The projection, to a number for each head or for each of its features.
        bias: What is added to the projection.
    """

    kind: str
    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor, width: int) -> Tensor:
        """Return the factors of all features of the heads, (B, T, width)."""
        bias = None if self.bias is None else self.bias.to(x)
        found = getattr(F, self.kind)(F.linear(x, self.weight.to(x), bias))
        return found.repeat_interleave(width // found.shape[-1], dim=-1)


Mixing = tuple[Tensor, Tensor | None]
"""A projection from heads to heads, (H, H), and its bias."""


def _mixed(mixing: Mixing | None, x: Float[Tensor, "B H T S"]) -> Tensor:
    """Mix the scores or weights of all heads."""
    if mixing is None:
        return x
    weight, bias = (None if each is None else each.to(x) for each in mixing)
    assert weight is not None
    mixed = torch.einsum("gh,bhts->bgts", weight, x)
    return mixed if bias is None else mixed + bias[:, None, None]


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
        terms: What is added for each distance between a query and a key.
        window: How many tokens a query may read, including itself.
        norms: The norms of queries and of keys.
        norms_first: Whether they are normalized before they are rotated.
        scale: The factor of the scores, or one for each head; by default one over the
            root of the head width.
        cap: The limit of a soft cap on scores.
        fill: A finite number that forbidden scores are filled with, if any.
        filled_by_adding: Whether ``fill`` is added to the scores instead.
        residual: Whether the layer adds its input to its output.
        before: The norm of the input, or what is added to it.
        after: The norm of the output, or its factors.
        gate: What the heads' outputs are multiplied by.
        scores_mixed: How scores of several heads are mixed.
        weights_mixed: How weights of several heads are mixed.
        rounded: Whether a constant in it, such as the scale, is in single precision.
        place: Applies norms and positions to queries, keys and values.
    """

    rotary: Rotary | None = None
    slopes: tuple[float, ...] | None = None
    symmetric: bool = False
    terms: Terms | None = None
    window: int | None = None
    norms: Norms | None = None
    norms_first: bool = True
    scale: float | tuple[float, ...] | None = None
    cap: float | None = None
    fill: float | None = None
    filled_by_adding: bool = False
    residual: bool = False
    before: Norm | Added | None = None
    after: Norm | Factor | None = None
    gate: Gate | None = None
    scores_mixed: Mixing | None = None
    weights_mixed: Mixing | None = None
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
        if self.terms is not None:
            yield "relative positions"
        if self.norms is not None:
            yield "normalized queries and keys"
        if self.window is not None:
            yield f"a window of {self.window}"
        if isinstance(self.scale, tuple):
            yield "a learned factor of the scores"
        elif self.scale is not None:
            yield f"scores times {self.scale:.4g}"
        if self.cap is not None:
            yield f"scores kept below {self.cap:g}"
        if self.residual:
            yield "its features added to the output"
        if isinstance(self.before, Added):
            yield "positions added to its features"
        if isinstance(self.after, Factor):
            yield "factors of its output"
        if isinstance(self.before, Norm) or isinstance(self.after, Norm):
            yield "a norm around it"
        if self.gate is not None:
            yield "a gate"
        if self.scores_mixed is not None or self.weights_mixed is not None:
            yield "mixed heads"
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
        known = self.rotary, self.slopes, self.terms, self.window
        return self.counts_from_start or any(each is not None for each in known)

    @property
    def counts_from_start(self) -> bool:
        """Whether a token's own position matters, not only its distance to others."""
        return isinstance(self.before, Added)

    @property
    def averages(self) -> bool:
        """Whether equal tokens get equal outputs, whatever the weights are."""
        adds = self.terms is not None and self.terms.of_values is not None
        return not (adds or self.counts_from_start) and self.weights_mixed is None

    def normed(self, q: _Heads, k: _Heads) -> tuple[_Heads, _Heads]:
        """Normalize queries and keys, if the form has norms for them."""
        queries, keys = self.norms or (None, None)
        return queries(q) if queries else q, keys(k) if keys else k

    def outside(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the residual to an output, and apply the norm or the factors after it."""
        output = x + output if self.residual else output
        return output if self.after is None else self.after(output[:, None])[:, 0]

    def around(self, steps: Steps) -> Steps:
        """Return the steps of attention with this form around them."""
        whole = replace(
            steps,
            attend=partial(_attend, self, steps.attend),
            allow=partial(_allow, self, steps.allow),
        )
        if self.terms is not None:
            whole = replace(whole, score=partial(_score, self.terms, steps.score))
        if self.gate is not None:
            whole = replace(whole, mix=partial(_mix, self.gate, steps.mix))
        inside = self.cap, self.slopes, self.fill, self.scores_mixed, self.weights_mixed
        if all(each is None for each in inside):
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
        q = q * (q.new_tensor(form.scale).view(-1, 1, 1) * q.shape[-1] ** 0.5)
    output, weights = attend(layer, q, k, v, mask)
    if form.terms is not None and weights is not None:
        output = output + form.terms.values(weights)
    return output, weights


def _mix(gate: Gate, mix: Callable[..., Tensor], layer: Any, heads: Tensor) -> Tensor:
    return mix(layer, heads * gate(layer.features, heads.shape[-1]))


def _score(terms: Terms, score: Callable[..., Tensor], q: _Heads, k: _Heads) -> Tensor:
    return score(q, k) + terms.scores(q, k)


def _weigh(
    form: Form, weigh: Callable[..., Any], scores: Tensor, mask: Tensor | None
) -> Tensor:
    if form.cap is not None:
        scores = form.cap * (scores / form.cap).tanh()
    scores = _mixed(form.scores_mixed, scores + _bias(form, scores))
    if form.fill is not None and mask is not None:
        fill = torch.finfo(scores.dtype).min if form.fill == LOWEST else form.fill
        if form.filled_by_adding:
            scores = scores + torch.zeros_like(scores).masked_fill(~mask, fill)
        else:
            scores = scores.masked_fill(~mask, fill)
        mask = None
        if weigh is attention_weights:  # which would make zeros of rows of -inf
            return _mixed(form.weights_mixed, scores.softmax(dim=-1))
    return _mixed(form.weights_mixed, weigh(scores, mask))


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
        self.features = inside
        output = super().forward(inside, mask=mask, causal=causal, cache=cache)
        assert isinstance(output, Tensor)
        return form.outside(x, output)

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
