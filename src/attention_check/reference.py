"""Reference attention: what a layer should compute, in the open, with its own weights.

Shapes: B sequences, T queries and S keys, H heads of queries and G of keys and values,
d features in a head, D features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attention_check.steps import Steps

__all__ = ["Reference", "Rotary", "allowed", "packed", "together"]

Part = nn.Module | Callable[[Any, Tensor], Tensor]
"""A module of the layer, or a function of the layer and of features."""


def allowed(
    x: Tensor,
    *,
    causal: bool = False,
    real: Tensor | None = None,
    context: Tensor | None = None,
) -> Tensor:
    """Return (B, 1, T, S), ``True`` where a query may attend.

    Args:
        x: The features of the queries, (B, T, D).
        causal: Whether later keys are forbidden.
        real: (B, S), ``True`` where a key is a token and ``False`` where it is padding.
        context: The features of the keys, (B, S, D); ``x`` by default.
    """
    keys = x if context is None else context
    mask = torch.ones(
        *(len(x), 1, x.shape[1], keys.shape[1]), dtype=torch.bool, device=x.device
    )
    if causal:
        mask = mask.tril(keys.shape[1] - x.shape[1])
    return mask if real is None else mask & real[:, None, None]


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions.

    Args:
        pairing: Which features of a head are turned together: feature ``i`` of the
            first half and of the second (``halves``), or features ``2i`` and ``2i + 1``
            (``neighbors``).
        base: Pair ``i`` of a head of width d turns by ``base ** (-2i / d)`` radians
            from one token to the next.
        width: Turn only so many of the first features of a head; all by default.
        rates: How far each pair turns from one token to the next, instead of ``base``.
        start: The position of the first token.

    Raises:
        ValueError: If ``pairing`` is unknown.
    """

    pairing: str = "halves"
    base: float = 10_000.0
    width: int | None = None
    rates: Sequence[float] | Tensor | None = None
    start: int = 0

    def __post_init__(self) -> None:
        if self.pairing not in ("halves", "neighbors"):
            raise ValueError(
                f"pairing={self.pairing!r} must be 'halves' or 'neighbors'"
            )

    def rates_of(self, head_dim: int) -> Tensor:
        """Return how far each pair turns per token, (width / 2,)."""
        if self.rates is not None:
            return torch.as_tensor(self.rates, dtype=torch.float64)
        width = head_dim if self.width is None else self.width
        steps = torch.arange(0, width, 2, dtype=torch.float64) / width
        return self.base**-steps

    def first_of_pairs(self, width: int) -> Tensor:
        """Return for each turned feature whether it is the first of its pair."""
        features = torch.arange(width)
        return features < width // 2 if self.pairing == "halves" else features % 2 == 0

    def turn(self, x: Tensor, at: Tensor, rates: Tensor | None = None) -> Tensor:
        """Turn heads (B, H, T, d) by the angles of their positions ``at``, (T,)."""
        rates = self.rates_of(x.shape[-1]) if rates is None else rates
        width = 2 * len(rates)
        x, rest = x[..., :width], x[..., width:]
        angles = (at + self.start).to(torch.float64)[:, None] * rates
        halves = self.pairing == "halves"
        angles = angles.repeat(1, 2) if halves else angles.repeat_interleave(2, dim=1)
        if halves:
            partner = x.roll(width // 2, dims=-1)
        else:
            partner = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        sign = torch.where(self.first_of_pairs(width), -1.0, 1.0)
        turned = x * angles.cos().to(x) + partner * (angles.sin() * sign).to(x)
        return torch.cat([turned, rest], dim=-1)


class Reference(nn.Module):
    """Attention in the open, of given projections, in steps that can be replaced.

    The projections ``q``, ``k``, ``v`` and ``o`` are modules of the layer that you
    check, such as ``layer.wq``, or functions of the layer and of features, such as
    ``lambda layer, x: layer.wq(layer.norm(x))``. Queries are split into H heads of
    neighboring features.

    Args:
        q: The projection to queries.
        k: The projection to keys.
        v: The projection to values.
        o: The projection of the merged heads; none by default.
        num_heads: H, the heads of queries.
        num_kv_heads: G, the heads of keys and values, each read by H / G neighboring
            heads of queries; H by default.
        causal: Whether a query ignores later keys, if a call cannot say so.
        scale: What multiplies the products of queries and keys; ``1 / sqrt(d)`` by
            default. A function is called with the number of keys that each query may
            see, a tensor.
        window: How many keys a causal query sees, up to and with its own; or how many
            before it and how many after it, without its own.
        rotary: Rotary positions, with which queries and keys are turned.
        alibi: Whether ``slope * distance`` is subtracted from the scores, with the
            usual slopes; or the slopes, (H,).
        bias: A function of the layer and of the positions of queries and keys to what
            is added to the scores, (H, T, S) or (B, H, T, S).
        relative: The same with heads of queries (B, H, T, d) as second argument; the
            result, (B, H, T, S), is added before the scale.
        norm_q: A module, or a function of the layer, for heads of queries.
        norm_k: The same for keys.
        norms_after_rotary: Whether norms follow the rotation.
        sink: The score of one more key without a value: a number, or one per head.
            With 0 this is softmax plus one.
        soft_cap: Scores become ``soft_cap * tanh(scores / soft_cap)``.
        gate: A function of the layer and of its input to what multiplies the merged
            heads, (B, T, H d), or (B, T, H, 1).
        after: A function of the layer, its input and the attention's output, for a
            residual or a norm in the layer.
        dropout: The probability of dropping a weight while training.
        steps: The steps to take; by default the correct ones.

    Raises:
        TypeError: If a setting has the wrong type, or a projection cannot be called.
        ValueError: If ``num_kv_heads`` does not divide ``num_heads``.
    """

    def __init__(
        self,
        *,
        q: Part,
        k: Part,
        v: Part,
        o: Part | None = None,
        num_heads: int,
        num_kv_heads: int | None = None,
        causal: bool | None = None,
        scale: float | Tensor | Callable[[Tensor], Tensor] | None = None,
        window: int | tuple[int, int] | None = None,
        rotary: Rotary | None = None,
        alibi: bool | Tensor | None = None,
        bias: Callable[[Any, Tensor, Tensor], Tensor] | None = None,
        relative: Callable[[Any, Tensor, Tensor, Tensor], Tensor] | None = None,
        norm_q: Part | None = None,
        norm_k: Part | None = None,
        norms_after_rotary: bool = False,
        sink: float | Tensor | None = None,
        soft_cap: float | None = None,
        gate: Part | None = None,
        after: Callable[[Any, Tensor, Tensor], Tensor] | None = None,
        dropout: float = 0.0,
        steps: Steps | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if not isinstance(num_heads, int) or not isinstance(num_kv_heads, int):
            raise TypeError(f"num_heads must be a number; it is {num_heads!r}")
        if causal is not None and not isinstance(causal, bool):
            raise TypeError(f"causal must be True or False; it is {causal!r}")
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads={num_kv_heads} must divide num_heads={num_heads}"
            )
        for name, part in (("q", q), ("k", k), ("v", v), ("o", o)):
            if not callable(part) and (part is not None or name != "o"):
                raise TypeError(
                    f"{name} must be a module or a function of the layer and of "
                    f"features; it is a {type(part).__name__}"
                )
        self.q, self.k, self.v, self.o = q, k, v, o
        self.norm_q, self.norm_k, self.gate, self.after = norm_q, norm_k, gate, after
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.causal, self.scale, self.window = causal, scale, window
        self.rotary, self.alibi, self.bias = rotary, alibi, bias
        self.relative, self.norms_after_rotary = relative, norms_after_rotary
        self.sink, self.soft_cap, self.dropout = sink, soft_cap, dropout
        self.steps = Steps() if steps is None else steps
        self.bind(None)

    def bind(self, layer: Any) -> "Reference":
        """Let functions be called with this layer, and return the reference."""
        # Not a part of the reference, which would then contain the layer.
        object.__setattr__(self, "layer", layer)
        return self

    def properties(self) -> list[str]:
        """Return what is special about it, in words for a report."""
        words = ["causal" if self.causal else "both sides"] * (self.causal is not None)
        if self.num_kv_heads != self.num_heads:
            words.append(
                f"{self.num_heads} heads of queries, {self.num_kv_heads} of keys"
            )
        if (rotary := self.rotary) is not None:
            base = (
                "given rates" if rotary.rates is not None else f"base {rotary.base:g}"
            )
            words.append(f"rotary positions ({rotary.pairing}, {base})")
        words += ["ALiBi"] * (self.alibi is not None and self.alibi is not False)
        if self.scale is not None:
            number = isinstance(self.scale, float | int)
            words.append(f"scale {self.scale:.4g}" if number else "a scale of its own")
        words += [f"window {self.window}"] * (self.window is not None)
        words += [f"cap {self.soft_cap}"] * (self.soft_cap is not None)
        if self.sink is not None:
            plus_one = isinstance(self.sink, float | int) and not self.sink
            words.append("softmax plus one" if plus_one else "a sink")
        for name, word in (
            ("norm_q", "norms"),
            ("bias", "a bias of the scores"),
            ("relative", "relative positions"),
            ("gate", "a gate"),
        ):
            words += [word] * (getattr(self, name) is not None)
        return words

    # --8<-- [start:forward]
    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        causal: bool | None = None,
        real: Tensor | None = None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """Attend, step by step.

        Args:
            x: What attends, (B, T, D).
            context: What is attended to, (B, S, D); ``x`` by default.
            causal: Whether a query ignores later keys; by default as set.
            real: ``True`` where a key is no padding, (B, S).
            kept: The keys and values of earlier calls, to which the new ones are added:
                an empty list at first.
        """
        return self.attend(x, context=context, causal=causal, real=real, kept=kept)[0]

    def attend(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        causal: bool | None = None,
        real: Tensor | None = None,
        kept: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as ``forward`` does, and return the weights, (B, H, T, S), as well."""
        steps = self.steps
        q, k, v = steps.project(self, x, x if context is None else context)
        q = steps.split(q, self.num_heads)
        k, v = (steps.split(projected, self.num_kv_heads) for projected in (k, v))
        start = kept[0].shape[2] if kept else 0
        t, s = (start + torch.arange(heads.shape[2]) for heads in (q, k))
        q, k, v = steps.place(self, q, k, v, t, s)
        if kept is not None:
            k, v = steps.extend(kept, k, v)
            kept[:] = [k, v]
            s = torch.arange(k.shape[2])
        if self.num_kv_heads != self.num_heads:
            k, v = steps.share(k, v, self.num_heads // self.num_kv_heads)
        mask = self.mask(t, s, self.causal if causal is None else causal, real)
        heads, weights = steps.attend(self, q, k, v, mask, t, s)
        merged = steps.merge(heads)
        if self.gate is not None:
            gate = self._call(self.gate, x)
            split = gate.ndim == 4
            shape = (*merged.shape[:2], self.num_heads, -1)
            merged = (merged.view(shape) * gate).flatten(2) if split else merged * gate
        output = steps.mix(self, merged)
        if self.after is not None:
            output = self.after(self.layer, x, output)
        return output, weights

    # --8<-- [end:forward]

    def read(self, parts: Sequence[Tensor]) -> Tensor:
        """Read the parts of a sequence one after the other, and join the outputs."""
        kept: list[Tensor] = []
        causal = self.causal is not False
        read = [self.attend(x, causal=causal, kept=kept)[0] for x in parts]
        return torch.cat(read, dim=1)

    def mask(
        self, t: Tensor, s: Tensor, causal: bool | None, real: Tensor | None
    ) -> Tensor | None:
        """Return what may be attended to, (T, S) or (B, 1, T, S); ``None`` for all."""
        masks = [self.steps.allow(self, len(t), len(s)) if causal else None]
        if self.window is not None:
            window = self.window
            before, after = (window - 1, 0) if isinstance(window, int) else window
            ahead = s - t[:, None]
            masks.append((-before <= ahead) & (ahead <= after))
        if real is not None:
            masks.append(self.steps.hide(real))
        mask: Tensor | None = None
        for condition in masks:
            if condition is not None:
                mask = condition if mask is None else mask & condition
        return mask

    def scores(
        self, q: Tensor, k: Tensor, mask: Tensor | None, t: Tensor, s: Tensor
    ) -> Tensor:
        """Return the scores, (B, H, T, S), with all that is added to them."""
        scale = self.scale
        if scale is None:
            scale = q.shape[-1] ** -0.5
        elif callable(scale):
            every = torch.ones(len(t), len(s)) if mask is None else mask
            scale = scale(every.sum(-1, keepdim=True).clamp_min(1).to(q))
        scores = self.steps.score(q, k, scale)
        if self.relative is not None:
            scores = scores + self.relative(self.layer, q, t, s) * scale
        if self.soft_cap is not None:
            scores = self.soft_cap * (scores / self.soft_cap).tanh()
        if self.alibi is not None and self.alibi is not False:
            scores = scores - self.slopes.to(q)[:, None, None] * (s - t[:, None]).abs()
        if self.bias is not None:
            scores = scores + self.bias(self.layer, t, s)
        return scores

    def weights(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weights, (B, H, T, S), in which a sink has its share."""
        if self.sink is None:
            return self.steps.weigh(scores, mask)
        sink = torch.as_tensor(self.sink).to(scores).expand(self.num_heads)
        column = sink[:, None, None].expand(*scores.shape[:-1], 1)
        if mask is not None:
            mask = torch.cat([mask, torch.ones_like(mask[..., :1])], dim=-1)
        return self.steps.weigh(torch.cat([scores, column], dim=-1), mask)[..., :-1]

    def spread(self, x: Tensor, context: Tensor) -> float:
        """Return the order of the scores of features."""
        q, k, _ = self.steps.project(self, x, context)
        return float(q.std() * k.std())

    @property
    def slopes(self) -> Tensor:
        """The slopes of ALiBi, (H,)."""
        if isinstance(self.alibi, Tensor):
            return self.alibi.flatten()
        # For heads that are no power of two, every second slope of the next power.
        power = 2 ** (self.num_heads.bit_length() - 1)
        usual = 2.0 ** (-8 / power * torch.arange(1, power + 1, dtype=torch.float64))
        more = 2.0 ** (-4 / power * torch.arange(1, 2 * power, 2, dtype=torch.float64))
        return torch.cat([usual, more])[: self.num_heads]

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return heads of queries and keys after their norms."""
        q = q if self.norm_q is None else self._call(self.norm_q, q)
        return q, k if self.norm_k is None else self._call(self.norm_k, k)

    def turned(self, x: Tensor, at: Tensor) -> Tensor:
        """Return heads of queries or keys, turned by their positions."""
        return x if self.rotary is None else self.rotary.turn(x, at)

    def project_q(self, x: Tensor) -> Tensor:
        """Return the queries of features."""
        return self._call(self.q, x)

    def project_k(self, x: Tensor) -> Tensor:
        """Return the keys of features."""
        return self._call(self.k, x)

    def project_v(self, x: Tensor) -> Tensor:
        """Return the values of features."""
        return self._call(self.v, x)

    def project_o(self, heads: Tensor) -> Tensor:
        """Return the output of merged heads."""
        return heads if self.o is None else self._call(self.o, heads)

    def _call(self, part: Part, x: Tensor) -> Tensor:
        return part(x) if isinstance(part, nn.Module) else part(self.layer, x)


class _Slice(nn.Module):
    """A part of what a module returns."""

    def __init__(self, module: nn.Module, take: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.take = module, take

    def forward(self, x: Tensor) -> Tensor:
        return self.take(self.module(x))


def packed(
    module: nn.Module,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    order: str = "thirds",
) -> dict[str, Any]:
    """Return settings of a ``Reference`` whose queries, keys and values are in one.

    Args:
        module: The projection to all three.
        num_heads: H, the heads of queries.
        num_kv_heads: G, the heads of keys and values; H by default.
        order: How they lie: all queries, then all keys, then all values (``thirds``);
            the query, key and value of each head (``heads``); or for each head of keys
            its queries, its key and its value (``groups``).

    Raises:
        ValueError: If ``order`` is unknown.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    if order not in ("thirds", "heads", "groups"):
        raise ValueError(f"order={order!r} must be 'thirds', 'heads' or 'groups'")
    group_size = num_heads // kv_heads

    def take(which: int) -> Callable[[Tensor], Tensor]:
        def taken(x: Tensor) -> Tensor:
            if order == "thirds":
                heads = x.unflatten(-1, (num_heads + 2 * kv_heads, -1))
                sizes = (num_heads, kv_heads, kv_heads)
                return heads.split(sizes, dim=-2)[which].flatten(-2)
            groups = x.unflatten(-1, (kv_heads, group_size + 2, -1))
            return groups.split((group_size, 1, 1), dim=-2)[which].flatten(-3)

        return taken

    q, k, v = (_Slice(module, take(which)) for which in range(3))
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return {"q": q, "k": k, "v": v, **sizes}


class _Together(nn.Module):
    """The outputs of several modules, side by side."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


def together(*modules: nn.Module) -> nn.Module:
    """Return a projection that joins those of the heads, each a module of its own."""
    return _Together(*modules)
