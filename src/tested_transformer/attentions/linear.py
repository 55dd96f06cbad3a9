"""Linear attention: no softmax, but a state of fixed size that keys and values add to.

The recurrent form is written to be read. The parallel form computes all positions at
once, and the chunked form goes from chunk to chunk. All three compute the same.
"""

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
from tested_transformer.inspection import is_open, numbers_of
from tested_transformer.interfaces import LayerSettings
from tested_transformer.layers import HeadNorm
from tested_transformer.multihead import merge_heads, split_heads

__all__ = [
    "LinearAttention",
    "LinearRecurrence",
    "OptionsOnScores",
    "StateCache",
    "StateLayer",
    "Stateful",
    "averaged_linear_attention",
    "chunked_linear_attention",
    "pairwise_decay",
    "parallel_linear_attention",
    "positive_features",
    "recurrent_linear_attention",
    "validate_stateful",
]

_Output = Float[Tensor, "B H T d_v"]
_State = Float[Tensor, "B H d_k d_v"]


def recurrent_linear_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    log_decay: Float[Tensor, "B H T gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
) -> tuple[_Output, _State]:
    """Return what each query reads from the state, and the state after the last token.

    Each token first writes its key and value into the state, then reads it.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        log_decay: The logarithm of the gate, at most 0. The gate is the fraction of the
            state that each token keeps, one for each feature of a key or one for all
            (a last axis of 1). By default nothing decays: plain linear attention.
        state: The state before the first token; zeros by default.

    Raises:
        ValueError: If shapes do not fit, or there are no tokens.

    Sources: Katharopoulos et al., 2020, "Transformers are RNNs", section 3.4; with
    gates Yang et al., 2024, "Gated Linear Attention Transformers", section 4.
    """
    state = validate_stateful(q, k, v, state)
    if log_decay is not None:
        _validate_log_decay(log_decay, k)
    # --8<-- [start:recurrent]
    outputs: list[Tensor] = []
    for t in range(q.shape[2]):
        if log_decay is not None:
            state = state * log_decay[:, :, t, :, None].exp()
        state = state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state
    # --8<-- [end:recurrent]


# --8<-- [start:parallel]
def parallel_linear_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    log_decay: Float[Tensor, "B H T gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
) -> tuple[_Output, _State]:
    """Compute ``recurrent_linear_attention`` at all positions at once.

    It makes a (T, T) table of scores, as attention does, but has no softmax. With a
    gate for each feature, the table is temporarily ``d_k`` times as large.

    Source: Yang et al., 2024, "Gated Linear Attention Transformers", section 4.
    """
    state = validate_stateful(q, k, v, state)
    if log_decay is None:
        past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
        scores = (q @ k.mT).masked_fill(~past.tril(), 0.0)
        return q @ state + scores @ v, state + k.mT @ v
    _validate_log_decay(log_decay, k)
    kept = log_decay.cumsum(dim=2)  # (B, H, T, gates), since the first token
    between = pairwise_decay(kept)  # (B, H, T, T, gates)
    if between.shape[-1] == 1:
        scores = (q @ k.mT) * between.squeeze(-1)
    else:
        scores = torch.einsum("bhtd,bhtsd->bhts", q, k[:, :, None] * between)
    to_the_end = (kept[:, :, -1:] - kept).exp()
    output = (q * kept.exp()) @ state + scores @ v
    return output, state * kept[:, :, -1, :, None].exp() + (k * to_the_end).mT @ v


def pairwise_decay(
    kept: Float[Tensor, "B H T gates"],
) -> Float[Tensor, "B H T T gates"]:
    """Return how much of what position s wrote is left at position t; 0 if s > t.

    Args:
        kept: The cumulative sums of the logarithms of the gates.
    """
    length = kept.shape[2]
    future = torch.ones(length, length, dtype=torch.bool, device=kept.device).triu(1)
    # This difference is at most 0; exp(-kept) by itself could overflow.
    between = kept[:, :, :, None] - kept[:, :, None]
    return between.masked_fill(future[..., None], float("-inf")).exp()


# --8<-- [end:parallel]


def chunked_linear_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    log_decay: Float[Tensor, "B H T gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
    chunk_size: int = 32,
) -> tuple[_Output, _State]:
    """Compute ``recurrent_linear_attention`` one chunk of tokens at a time.

    It is parallel within a chunk and recurrent from one chunk to the next. Work and
    memory are linear in T, and most of the work is matrix products. A length that
    ``torch.compile`` or ``torch.export`` leaves open is one chunk.

    Source: Yang et al., 2024, "Gated Linear Attention Transformers", section 2.
    """
    state = validate_stateful(q, k, v, state)
    validate_sizes(chunk_size=chunk_size)
    if log_decay is not None:
        _validate_log_decay(log_decay, k)
    if is_open(q.shape[2]):
        return parallel_linear_attention(q, k, v, log_decay=log_decay, state=state)
    # --8<-- [start:chunked]
    outputs: list[Tensor] = []
    for start in range(0, q.shape[2], chunk_size):
        at = slice(start, start + chunk_size)
        output, state = parallel_linear_attention(
            q[:, :, at],
            k[:, :, at],
            v[:, :, at],
            log_decay=None if log_decay is None else log_decay[:, :, at],
            state=state,
        )
        outputs.append(output)
    return torch.cat(outputs, dim=2), state
    # --8<-- [end:chunked]


# --8<-- [start:averaged]
def positive_features(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Return ``elu(x) + 1``, which is positive: features whose products are weights.

    Source: Katharopoulos et al., 2020, "Transformers are RNNs", equation 7.
    """
    return F.elu(x) + 1


def averaged_linear_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    chunk_size: int = 32,
) -> _Output:
    """Average the values up to each query by the products of ``positive_features``.

    The sum of the weights is the output for a value that is always 1, so an extra
    column of the state computes it.

    Source: Katharopoulos et al., 2020, "Transformers are RNNs", equations 9 to 12.
    """
    validate_stateful(q, k, v, None)
    q, k = positive_features(q), positive_features(k)
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    sums, _ = chunked_linear_attention(q, k, v, chunk_size=chunk_size)
    return sums[..., :-1] / sums[..., -1:]


# --8<-- [end:averaged]


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


class LinearRecurrence(Stateful):
    """Attend without a softmax, with ``LinearAttention``.

    Args:
        gated: Let each token choose how much of the state it keeps.
    """

    def make(self, settings: LayerSettings) -> "LinearAttention":
        """Return a new layer."""
        return LinearAttention(
            d_model=settings.d_model,
            num_heads=settings.num_heads,
            head_dim=settings.head_dim,
            bias=settings.bias,
            gated=self.gated,
            device=settings.device,
            dtype=settings.dtype,
        )


class OptionsOnScores(TypedDict, total=False):
    """What an ``AttentionLayer`` can be asked to do with its scores."""

    mask: Bool[Tensor, "..."] | None
    window: int | None
    score_bias: Float[Tensor, "..."] | None
    rotary: Float[Tensor, "2 *table T half"] | None
    return_weights: bool


# --8<-- [start:layer]
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
        chunk_size: How many tokens are computed at once.
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


class LinearAttention(StateLayer):
    """Several heads of linear attention, with or without a gate for each feature.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        bias: Whether the four projections add a bias.
        chunk_size: How many tokens are computed at once.
        gated: Let each token choose how much of each feature of the state it keeps.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Source: Yang et al., 2024, "Gated Linear Attention Transformers", section 4. Their
    gate comes from a low-rank matrix, ours from a full one.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        bias: bool = False,
        chunk_size: int = 32,
        gated: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            bias=bias,
            chunk_size=chunk_size,
            device=device,
            dtype=dtype,
        )
        width = self.num_heads * self.head_dim
        self.gate_proj: nn.Linear | None = None
        if gated:
            self.gate_proj = nn.Linear(d_model, width, device=device, dtype=dtype)

    def mix(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H T d_k"],
        v: Float[Tensor, "B H T d_k"],
        x: Float[Tensor, "B T D"],
        state: Float[Tensor, "B H d_k d_k"] | None,
    ) -> tuple[Float[Tensor, "B H T d_k"], _State]:
        """Add keys and values to the state, which decays if there are gates."""
        log_decay = None
        if self.gate_proj is not None:
            # Divide by 16, so that gates start near 1 but can still close.
            log_decay = F.logsigmoid(self.gates(self.gate_proj, x, q)) / 16
            log_decay = split_heads(log_decay, self.num_heads)
        return chunked_linear_attention(
            q, k, v, log_decay=log_decay, state=state, chunk_size=self.chunk_size
        )


# --8<-- [end:layer]


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


def _validate_log_decay(log_decay: Tensor, k: Tensor) -> None:
    wanted = (*k.shape[:3], 1), (*k.shape,)
    if (*log_decay.shape,) not in wanted:
        raise ValueError(
            f"log_decay must be {wanted[1]}, or 1 in the last axis; "
            f"it is {tuple(log_decay.shape)}"
        )
