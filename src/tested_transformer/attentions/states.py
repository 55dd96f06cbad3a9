"""What all attention with a state has in common: the layer, its cache, and chunks.

A run of tokens does something linear to the state that it begins with: it keeps part of
it, and adds something. So chunks of tokens can be computed side by side, each from an
empty state, and a scan then finds the states between them.
"""

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


class StateCache:
    """The state of a layer, which replaces keys and values and has a fixed size.

    It goes back to no token before the last, whose states are gone.

    Args:
        state: Memory for the state; its initial content does not matter.
    """

    rewindable = False

    def __init__(self, state: Float[Tensor, "B H d_k d_v"]) -> None:
        self._state = state
        self.length = 0

    @property
    def state(self) -> Float[Tensor, "B H d_k d_v"] | None:
        """The state after the last token; ``None`` before the first."""
        return self._state if self.length else None

    def keep(self, state: Float[Tensor, "B H d_k d_v"], num_new: int) -> None:
        """Store the state after ``num_new`` more tokens.

        Raises:
            ValueError: If the cache was made for a state of another shape.
        """
        validate_shape("state", state, (*self._state.shape,))
        self._state = state
        self.length += num_new

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self._state.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory of the state, in bytes."""
        return self._state.nbytes

    @property
    def earliest(self) -> int:
        """The smallest length, other than 0, to go back to: what has been read."""
        return self.length

    def rewind(self, length: int) -> None:
        """Forget all tokens, or none.

        Raises:
            ValueError: If ``length`` is neither 0 nor what has been read.
        """
        validate_rewind(self, length)
        self.length = length

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.length, self._state = 0, self._state.detach()


@dataclass(frozen=True, kw_only=True)
class Stateful:
    """What holds for all settings that make a ``StateLayer``."""

    gated: bool = False

    # There are no scores for ALiBi, and no keys to rotate.
    positions: ClassVar[tuple[str, ...]] = ("learned", "sinusoidal", "none")
    unsupported: ClassVar[tuple[str, ...]] = (
        "num_kv_heads",
        "kept_heads",
        "qk_norm",
        "windows",
    )
    has_scores: ClassVar[bool] = False
    keeps_heads: ClassVar[bool] = False
    weighs_by_head: ClassVar[bool] = False
    reads_padding: ClassVar[bool] = False


class OptionsOnScores(TypedDict, total=False):
    """What an ``AttentionLayer`` can be asked to do with its scores."""

    mask: Bool[Tensor, "..."] | None
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
        cache: Cache | None = None,
        **on_scores: Unpack[OptionsOnScores],
    ) -> Float[Tensor, "B T D"] | tuple[Float[Tensor, "B T D"], _State]:
        """Return what every position reads from the state.

        Args:
            x: The sequence.
            state: The state after earlier tokens, as returned by a previous call.
            return_state: Also return the state after the last token.
            causal: Must be true: a state only holds the past.
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
        q, k, v = (
            split_heads(proj(x), self.num_heads)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        # A sum in half precision stops growing when what comes is too small for it.
        wide = torch.promote_types(q.dtype, torch.float32)
        with _without_autocast(x.device):
            q, k, v = q.to(wide), k.to(wide), v.to(wide)
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            heads, state = self.mix(q, k, v, x, state)
        if isinstance(cache, StateCache):
            cache.keep(state, x.shape[1])
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
        return StateCache(like.new_zeros(shape, dtype=wide))

    def gates(
        self, projection: nn.Module, x: Float[Tensor, "B T D"], like: Tensor
    ) -> Float[Tensor, "B T gates"]:
        """Project ``x`` in the projection's own type; return gates in that of ``like``.

        Autocast is off while states are computed, so ``x`` may have another type.
        """
        return projection(x.to(numbers_of(projection).dtype)).to(like.dtype)

    def mix(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H T d_k"],
        v: Float[Tensor, "B H T d_k"],
        x: Float[Tensor, "B T D"],
        state: Float[Tensor, "B H d_k d_k"] | None,
    ) -> tuple[Float[Tensor, "B H T d_k"], _State]:
        """Let each head write and read its state; a subclass says how.

        Queries, keys, values and state come in float32 or wider, whatever the type of
        the parameters, and so do the results.
        """
        raise NotImplementedError


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
        wanted = ", ".join(map(str, k.shape[:3]))
        raise ValueError(f"v must be ({wanted}, d_v); it is {tuple(v.shape)}")
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    if state is None:
        return v.new_zeros(shape)
    validate_shape("state", state, shape)
    return state
