"""What all attention with a state has in common: the layer, its cache, and chunks.

A run of tokens does something linear to the state that it begins with: it keeps part of
it, and adds something. So chunks of tokens can be computed side by side, each from an
empty state, and a scan then finds the states between them.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, TypedDict, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.cache import Cache, validate_rewind
from tested_transformer.checks import (
    validate_features,
    validate_heads,
    validate_kinds,
    validate_mask,
    validate_shape,
    validate_sizes,
)
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import HeadNorm
from tested_transformer.multihead import merge_heads, split_heads

__all__ = [
    "Effect",
    "OptionsOnScores",
    "StateCache",
    "StateLayer",
    "Stateful",
    "begin_with",
    "in_chunks",
    "validate_stateful",
]

_State = Float[Tensor, "B H d_k d_v"]


# --8<-- [start:effect]
Effect = tuple[
    Float[Tensor, "B chunks C d_v"],
    Float[Tensor, "B chunks C d_k"],
    Float[Tensor, "B chunks d_k d_v"],
    Float[Tensor, "B chunks rows kept"] | None,
]
"""What a run of tokens does to any state that it begins with, in four tensors.

The first is what its queries read if the state is empty, the second what they read of
the state, as rows that multiply it. The third is the state after it, if it was empty
before. The last is what is left of the state: a factor, or one for each row, or a
matrix that multiplies it; (1, 1), (d_k, 1) or (d_k, d_k). ``None`` if all of it is.
"""


def begin_with(state: _State, effect: Effect) -> tuple[Tensor, Tensor]:
    """Return the outputs of a run of tokens and the state after it."""
    output, reads, update, keeps = effect
    return output + reads @ state, _left(keeps, state) + update


def in_chunks(
    effect: Callable[..., Effect],
    tensors: tuple[Tensor, ...],
    state: _State,
    chunk_size: int,
) -> tuple[Float[Tensor, "B H T d_v"], _State]:
    """Return the outputs of all tokens and the last state, by chunks side by side.

    Args:
        effect: Returns what chunks do; it takes them for heads.
        tensors: Its arguments, (B, H, T, ...). Zeros in each of them change nothing.
        state: The state before the first token.
        chunk_size: How many tokens make a chunk.
    """
    num_heads, length = tensors[0].shape[1:3]
    missing = -length % chunk_size
    effects = effect(*(_cut(x, missing, chunk_size) for x in tensors))
    output, reads, updates = (x.unflatten(1, (num_heads, -1)) for x in effects[:3])
    keeps = None if effects[3] is None else effects[3].unflatten(1, (num_heads, -1))
    before = _before(keeps, updates, state)
    output = (output + reads @ before).flatten(2, 3)[:, :, :length]
    last = None if keeps is None else keeps[:, :, -1]
    return output, _left(last, before[:, :, -1]) + updates[:, :, -1]


def _cut(x: Tensor, missing: int, chunk_size: int) -> Tensor:
    """Cut (B, H, T, ...) into chunks, (B, H * chunks, C, ...), the last with zeros."""
    if missing:
        x = F.pad(x, (0, 0) * (x.ndim - 3) + (0, missing))
    return x.unflatten(2, (-1, chunk_size)).flatten(1, 2)


def _left(keeps: Tensor | None, state: Tensor) -> Tensor:
    """Return what is left of a state, or of what is left of states before it."""
    if keeps is None:
        return state
    return keeps * state if keeps.shape[-1] == 1 else keeps @ state


def _before(
    keeps: Float[Tensor, "B H chunks rows kept"] | None,
    updates: Float[Tensor, "B H chunks d_k d_v"],
    state: _State,
) -> Float[Tensor, "B H chunks d_k d_v"]:
    """Return the state before each chunk, if the first one begins with ``state``.

    Neighbors are joined to pairs, whose states are found in the same way, so there are
    as many steps as the number of chunks has doublings.

    Source: Blelloch, 1990, "Prefix Sums and Their Applications", section 1.4.
    """
    count = updates.shape[2]
    if count == 1:
        return state[:, :, None]
    if keeps is None:
        return torch.cat([state[:, :, None], updates[:, :, :-1]], dim=2).cumsum(dim=2)
    if count % 2:
        keeps, updates = (F.pad(x, (0, 0, 0, 0, 0, 1)) for x in (keeps, updates))
    (k0, k1), (u0, u1) = (
        x.unflatten(2, (-1, 2)).unbind(dim=3) for x in (keeps, updates)
    )
    first = _before(_left(k1, k0), _left(k1, u0) + u1, state)
    second = _left(k0, first) + u0
    return torch.stack([first, second], dim=3).flatten(2, 3)[:, :, :count]


# --8<-- [end:effect]


Writes = tuple[Float[Tensor, "B H T _"], ...]
"""What tokens write into a state: keys, values, and what gates them, if anything does.

Zeros in all of them leave the state as it is."""


class StateCache:
    """The state of a layer, which replaces keys and values and has a fixed size.

    A state does not tell what it was before the last token. With ``slack``, the cache
    also keeps an older state and what tokens have written since then, to write the
    first of them once more when the others are taken back.

    Args:
        state: Memory for the state; its initial content does not matter.
        write: Returns the state after tokens, from the state before and what they
            write.
    """

    slack = 0
    """How many tokens of the longest text can be taken back, if no pass reads more."""

    def __init__(
        self,
        state: Float[Tensor, "B H d_k d_v"],
        write: Callable[[_State | None, Writes], _State],
    ) -> None:
        self._state = state
        self._write = write
        self.reset()

    @property
    def state(self) -> Float[Tensor, "B H d_k d_v"] | None:
        """The state after the last token; ``None`` before the first."""
        return self._state if self.length else None

    # --8<-- [start:rewind]
    def keep(self, state: Float[Tensor, "B H d_k d_v"], writes: Writes) -> None:
        """Store the state after more tokens, and what these wrote.

        Raises:
            ValueError: If the cache was made for a state of another shape.
        """
        validate_shape("state", state, (*self._state.shape,))
        num_new, before = writes[0].shape[2], self.state
        self._state, self.length = state, self.length + num_new
        if num_new > self.slack:
            self._older, self._recent, self.earliest = None, [], self.length
            return
        if not self._recent:
            self._older = before
        self._recent.append(writes)
        if self.length - self.earliest > 2 * self.slack:
            self._older = self._write(self._older, self._written(0, self.slack))
            self._recent = [self._written(self.slack, self.length - self.earliest)]
            self.earliest += self.slack

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``.

        Raises:
            ValueError: If there are fewer tokens, or ``length`` is less than
                ``earliest`` and not 0.
        """
        validate_rewind(self, length)
        if length == 0:
            self.reset()
        elif length < self.length:
            if length == self.earliest and self._older is not None:
                self._recent, self._state = [], self._older
            else:
                self._recent = [self._written(0, length - self.earliest)]
                self._state = self._write(self._older, self._recent[0])
            self.length = length

    # --8<-- [end:rewind]

    def _written(self, start: int, end: int) -> Writes:
        """Return what some of the recent tokens wrote."""
        parts = zip(*self._recent, strict=True)
        return (*(torch.cat(part, dim=2)[:, :, start:end].clone() for part in parts),)

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self._state.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory of the state, in bytes, and of what it takes to go back."""
        older = () if self._older is None else (self._older,)
        recent = itertools.chain.from_iterable(self._recent)
        return sum(tensor.nbytes for tensor in (self._state, *older, *recent))

    def reset(self) -> None:
        """Forget all tokens, but keep the memory of the state."""
        self.length, self._state = 0, self._state.detach()
        self.earliest = 0  # the length of the oldest state that is kept
        self._older: Tensor | None = None
        self._recent: list[Writes] = []  # of the tokens after it


@dataclass(frozen=True, kw_only=True)
class Stateful:
    """What holds for all settings that make a ``StateLayer``."""

    # There are no scores for ALiBi, and no keys to rotate.
    positions: ClassVar[tuple[str, ...]] = ("learned", "sinusoidal", "none")
    unsupported: ClassVar[tuple[str, ...]] = (
        "num_kv_heads",
        "qk_norm",
        "windows",
    )
    has_scores: ClassVar[bool] = False
    keeps_heads: ClassVar[bool] = False
    weighs_by_head: ClassVar[bool] = False
    reads_padding: ClassVar[bool] = True


class OptionsOnScores(TypedDict, total=False):
    """What an ``AttentionLayer`` can be asked to do with its scores."""

    window: int | None
    score_bias: Float[Tensor, "..."] | None
    rotary: Float[Tensor, "2 *table T half"] | None
    return_weights: bool


class StateLayer(nn.Module):
    """Base class of layers whose heads each read and write a state.

    Queries and keys are normalized to length 1, so that what is written can be read
    back. The output of each head is normalized before the heads are mixed. States are
    computed and kept in float32 or wider, in half precision and under autocast too.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        bias: Whether the four projections add a bias.
        chunk_size: How many tokens make a chunk.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Raises:
        ValueError: If a size is not positive, or ``num_heads`` does not divide
            ``d_model`` and no ``head_dim`` is given.

    Source: Yang et al., 2024, "Parallelizing Linear Transformers with the Delta Rule".
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        bias: bool = False,
        chunk_size: int = 32,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        validate_heads(d_model, num_heads, head_dim)
        validate_sizes(chunk_size=chunk_size)
        head_dim = d_model // num_heads if head_dim is None else head_dim
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.chunk_size = chunk_size
        width = num_heads * head_dim
        self.q_proj = nn.Linear(d_model, width, bias, device, dtype)
        self.k_proj = nn.Linear(d_model, width, bias, device, dtype)
        self.v_proj = nn.Linear(d_model, width, bias, device, dtype)
        self.norm = HeadNorm(head_dim, eps=1e-6, device=device, dtype=dtype)
        self.o_proj = nn.Linear(width, d_model, bias, device, dtype)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        state: Float[Tensor, "B H d_k d_k"] | None = None,
        return_state: bool = False,
        causal: bool = True,
        mask: Bool[Tensor, "..."] | None = None,
        cache: Cache | None = None,
        **on_scores: Unpack[OptionsOnScores],
    ) -> Float[Tensor, "B T D"] | tuple[Float[Tensor, "B T D"], _State]:
        """Return what every position reads from the state.

        Args:
            x: The sequence.
            state: The state after earlier tokens, as returned by a previous call.
            return_state: Also return the state after the last token.
            causal: Must be true: a state only holds the past.
            mask: (B, 1, 1, S), False for padding, which changes no state. S is T; with
                a cache, it counts the tokens before, too.
            cache: Start from the state in this cache of ``new_cache``, and store the
                new state in it.
            on_scores: Must be ``None`` or false, since without scores there is nothing
                to mask, rotate or return.

        Raises:
            TypeError: If ``x`` is not a tensor.
            ValueError: If shapes do not fit, or an argument asks for something that
                needs scores.
        """
        validate_features("x", x, self.d_model)
        if not causal:
            raise ValueError("causal=False is refused: a state only holds the past")
        for name, option in on_scores.items():
            if option is not None and option is not False:
                raise ValueError(
                    f"{name} is refused: {type(self).__name__} has a state, but "
                    "neither scores nor a cache of keys"
                )
        if cache is not None:
            state = _state_in(cache, state)
        tokens = None if mask is None else _tokens_in(mask, x, cache)
        q, k, v = (
            split_heads(proj(x), self.num_heads)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        # A sum in half precision stops growing when what comes is too small for it.
        wide = torch.promote_types(q.dtype, torch.float32)
        with _without_autocast(x.device):
            q, k, v = q.to(wide), k.to(wide), v.to(wide)
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            writes = (k, v, *self.gates(x, q))
            if tokens is not None:
                real = tokens[:, None, :, None]
                writes = (*(tensor.where(real, 0) for tensor in writes),)
            heads, state = self.mix(q, writes, state)
        if isinstance(cache, StateCache):
            cache.keep(state, writes)
        output = self.o_proj(merge_heads(self.norm(heads)))
        return (output, state) if return_state else output

    def new_cache(self, batch_size: int, max_length: int) -> StateCache:
        """Return an empty cache for the state of this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: Has no effect: a state has room for any number of tokens.
        """
        shape = batch_size, self.num_heads, self.head_dim, self.head_dim
        like = numbers_of(self)
        wide = torch.promote_types(like.dtype, torch.float32)
        return StateCache(like.new_zeros(shape, dtype=wide), self._write)

    def _write(self, state: _State | None, writes: Writes) -> _State:
        """Return the state after tokens, which nobody reads on the way."""
        with _without_autocast(writes[0].device):
            return self.mix(writes[0], writes, state)[1]

    def gate(
        self, projection: nn.Module, x: Float[Tensor, "B T D"], like: Tensor
    ) -> Float[Tensor, "B H T gates"]:
        """Project ``x`` in the projection's own type; return gates in that of ``like``.

        Autocast is off while states are computed, so ``x`` may have another type.
        """
        gates = projection(x.to(numbers_of(projection).dtype)).to(like.dtype)
        return split_heads(gates, self.num_heads)

    def gates(
        self, x: Float[Tensor, "B T D"], like: Tensor
    ) -> tuple[Float[Tensor, "B H T gates"], ...]:
        """Return the gates of tokens, 0 for one that leaves the state as it is.

        Args:
            x: The sequence.
            like: A tensor of their type.
        """
        raise NotImplementedError

    def mix(
        self,
        q: Float[Tensor, "B H T d_k"],
        writes: Writes,
        state: Float[Tensor, "B H d_k d_k"] | None,
    ) -> tuple[Float[Tensor, "B H T d_k"], _State]:
        """Let each head write and read its state; a subclass says how.

        Queries, keys, values and state come in float32 or wider, whatever the type of
        the parameters, and so do the results.

        Args:
            q: Queries.
            writes: Keys, values and ``gates``.
            state: The state before the first token; ``None`` for zeros.
        """
        raise NotImplementedError


def _tokens_in(
    mask: Tensor, x: Float[Tensor, "B T D"], cache: Cache | None
) -> Bool[Tensor, "_ T"]:
    """Return which of the new tokens are no padding."""
    shape = len(x), 1, 1, x.shape[1] + (0 if cache is None else cache.length)
    if getattr(mask, "shape", shape) not in (shape, (1, *shape[1:])):
        raise ValueError(
            f"mask must be {shape}, False for padding: a state hides a token from all "
            f"queries or from none; it is {tuple(mask.shape)}"
        )
    validate_mask(mask, torch.Size(shape), x.device)
    return mask[:, 0, 0, -x.shape[1] :]


def _without_autocast(device: torch.device) -> AbstractContextManager[object]:
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()  # there is none, as on the meta device


def _state_in(cache: Cache, state: Tensor | None) -> Tensor | None:
    """Return the state that a cache holds."""
    if not isinstance(cache, StateCache):
        raise ValueError("cache must come from this layer's new_cache")
    if state is not None:
        raise ValueError(
            "state and cache are both given; the cache holds a state: leave state out"
        )
    return cache.state


def validate_stateful(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None
) -> Float[Tensor, "B H d_k d_v"]:
    """Return the initial state, or raise a ``ValueError`` if shapes do not fit."""
    validate_kinds(q=q, k=k, v=v)
    if not q.is_floating_point():
        raise TypeError(f"q, k and v must be floating-point; their dtype is {q.dtype}")
    if q.ndim != 4 or q.shape[2] < 1:
        raise ValueError(f"q must be (B, H, T, d_k), T > 0; it is {tuple(q.shape)}")
    if k.shape != q.shape:
        raise ValueError(f"k must be {tuple(q.shape)}, like q; it is {tuple(k.shape)}")
    if v.ndim != 4 or v.shape[:3] != k.shape[:3]:
        sizes = ", ".join(map(str, k.shape[:3]))
        raise ValueError(f"v must be ({sizes}, d_v); it is {tuple(v.shape)}")
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    if state is None:
        return v.new_zeros(shape)
    validate_shape("state", state, shape)
    return state
