"""Linear attention: no softmax, but a state of fixed size that keys and values add to.

The recurrent form is written to be read. The parallel form computes all positions at
once, and the chunked form computes all chunks at once. All three compute the same.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.attentions.states import (
    Effect,
    Stateful,
    StateLayer,
    Writes,
    begin_with,
    in_chunks,
    validate_stateful,
)
from tested_transformer.checks import validate_sizes
from tested_transformer.inspection import is_open
from tested_transformer.interfaces import LayerSettings

__all__ = [
    "LinearAttention",
    "LinearRecurrence",
    "averaged_linear_attention",
    "chunked_linear_attention",
    "decayed_products",
    "pairwise_decay",
    "parallel_linear_attention",
    "positive_features",
    "recurrent_linear_attention",
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
    outputs: list[Tensor] = []
    for t in range(q.shape[2]):
        if log_decay is not None:
            state = state * log_decay[:, :, t, :, None].exp()
        state = state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state


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
    if log_decay is not None:
        _validate_log_decay(log_decay, k)
    return begin_with(state, _effect(q, k, v, log_decay))


def _effect(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None) -> Effect:
    """Return what these tokens do to a state."""
    if log_decay is None:
        past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
        scores = (q @ k.mT).masked_fill(~past.tril(), 0.0)
        return scores @ v, q, k.mT @ v, None
    kept = log_decay.cumsum(dim=2)  # (B, H, T, gates), since the first token
    scores = decayed_products(q, k, kept)
    to_the_end = (kept[:, :, -1:] - kept).exp()
    update = (k * to_the_end).mT @ v
    return scores @ v, q * kept.exp(), update, kept[:, :, -1, :, None].exp()


def decayed_products(
    q: Float[Tensor, "*several B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    kept: Float[Tensor, "B H T gates"],
) -> Float[Tensor, "*several B H T T"]:
    """Return the product of each query with each key up to it, times what is left.

    Args:
        q: Queries, or several tensors of them.
        k: Keys.
        kept: As for ``pairwise_decay``, with a gate for each feature or one for all.
    """
    if kept.shape[-1] == 1:
        return (q @ k.mT) * pairwise_decay(kept).squeeze(-1)
    if not kept.requires_grad:  # calling the function costs more than it saves
        return _DecayedProducts.forward(q, k, kept)
    return _DecayedProducts.apply(q, k, kept)


class _DecayedProducts(torch.autograd.Function):
    """Compute ``decayed_products`` for a gate per feature, with the gradient in code.

    Its tables, ``d_k`` times as large as the scores, are computed again for the
    gradient instead of being kept until then.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, kept: Tensor) -> Tensor:
        left = k[:, :, None] * pairwise_decay(kept)  # (B, H, T, T, d_k)
        return torch.einsum("...td,...tsd->...ts", q, left)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor
    ) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, kept = ctx.saved_tensors
        (of_scores,) = grad_outputs
        decay = pairwise_decay(kept)
        of_q = torch.einsum("...ts,...tsd->...td", of_scores, k[:, :, None] * decay)
        of_left = torch.einsum("...bhts,...bhtd->bhtsd", of_scores, q)
        of_k = (of_left * decay).sum(dim=-3)
        # A score grows with what is kept at its query, and shrinks with its key's.
        return of_q, of_k, (q * of_q).sum_to_size(k.shape) - k * of_k


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


def chunked_linear_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    log_decay: Float[Tensor, "B H T gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
    chunk_size: int | None = None,
) -> tuple[_Output, _State]:
    """Compute ``recurrent_linear_attention`` in chunks of tokens, side by side.

    Work and memory are linear in T, and most of the work is matrix products. A length
    that ``torch.compile`` or ``torch.export`` leaves open is one chunk. By default a
    chunk has 32 tokens, and 8 if each feature has a gate: then its table of pairs is as
    many times as large as there are features.

    Source: Yang et al., 2024, "Gated Linear Attention Transformers", section 2.
    """
    state = validate_stateful(q, k, v, state)
    if chunk_size is None:
        gates = 1 if log_decay is None else log_decay.shape[-1]
        chunk_size = 32 if gates == 1 else 8
    validate_sizes(chunk_size=chunk_size)
    if log_decay is not None:
        _validate_log_decay(log_decay, k)
    if is_open(q.shape[2]) or q.shape[2] <= chunk_size:
        return begin_with(state, _effect(q, k, v, log_decay))
    tensors = (q, k, v) if log_decay is None else (q, k, v, log_decay)
    return in_chunks(_effect, tensors, state, chunk_size)


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


@dataclass(frozen=True, kw_only=True)
class LinearRecurrence(Stateful):
    """Attend without a softmax, with ``LinearAttention``.

    Args:
        gated: Let each token choose how much of the state it keeps.
    """

    gated: bool = False

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


class LinearAttention(StateLayer):
    """Several heads of linear attention, with or without a gate for each feature.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        bias: Whether the four projections add a bias.
        chunk_size: How many tokens make a chunk; see ``chunked_linear_attention``.
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
        chunk_size: int | None = None,
        gated: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            bias=bias,
            chunk_size=(8 if gated else 32) if chunk_size is None else chunk_size,
            device=device,
            dtype=dtype,
        )
        width = self.num_heads * self.head_dim
        self.gate_proj: nn.Linear | None = None
        if gated:
            self.gate_proj = nn.Linear(d_model, width, device=device, dtype=dtype)

    def gates(
        self, x: Float[Tensor, "B T D"], like: Tensor
    ) -> tuple[Float[Tensor, "B H T gates"], ...]:
        """Return the logarithms of the gates, if there are any."""
        if self.gate_proj is None:
            return ()
        # Divide by 16, so that gates start near 1 but can still close.
        return (F.logsigmoid(self.gate(self.gate_proj, x, like)) / 16,)

    def mix(
        self,
        q: Float[Tensor, "B H T d_k"],
        writes: Writes,
        state: Float[Tensor, "B H d_k d_k"] | None,
    ) -> tuple[Float[Tensor, "B H T d_k"], _State]:
        """Add keys and values to the state, which decays if there are gates."""
        k, v, *gates = writes
        log_decay = gates[0] if gates else None
        return chunked_linear_attention(
            q, k, v, log_decay=log_decay, state=state, chunk_size=self.chunk_size
        )


def _validate_log_decay(log_decay: Tensor, k: Tensor) -> None:
    allowed = (*k.shape[:3], 1), (*k.shape,)
    if (*log_decay.shape,) not in allowed:
        raise ValueError(
            f"log_decay must be {allowed[1]}, or 1 in the last axis; "
            f"it is {tuple(log_decay.shape)}"
        )
