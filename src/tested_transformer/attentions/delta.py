"""The delta rule: writing a value replaces what the state held under its key.

The recurrent form is written to be read. The parallel form solves one triangular
system for all positions, and the chunked form solves one for each chunk.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.attentions.linear import decayed_products
from tested_transformer.attentions.states import (
    Effect,
    Stateful,
    StateLayer,
    Writes,
    in_chunks,
    validate_stateful,
)
from tested_transformer.checks import validate_kinds, validate_shape, validate_sizes
from tested_transformer.inspection import is_open
from tested_transformer.interfaces import LayerSettings

__all__ = [
    "DeltaAttention",
    "DeltaRule",
    "chunked_delta_rule",
    "parallel_delta_rule",
    "recurrent_delta_rule",
]

_Output = Float[Tensor, "B H T d_v"]
_State = Float[Tensor, "B H d_k d_v"]


def recurrent_delta_rule(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    beta: Float[Tensor, "B H T"],
    *,
    log_decay: Float[Tensor, "B H T *gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
) -> tuple[_Output, _State]:
    """Return what each query reads from the state, and the state after the last token.

    Each token reads what the state holds under its key, and adds ``beta`` times the
    difference between its value and that. Then its query reads the state.

    Args:
        q: Queries. They are not scaled.
        k: Keys, of length 1: with longer ones the state can grow without bound.
        v: Values.
        beta: How much of the difference is written, from 0 (nothing) to 1 (all of it).
        log_decay: The logarithm of the gate, at most 0. The gate is the fraction of the
            state that each token keeps before it reads and writes, one for all of it,
            or one for each feature of a key, (B, H, T, d_k); 1 by default.
        state: The state before the first token; zeros by default.

    Raises:
        ValueError: If shapes do not fit, or there are no tokens.

    Sources: Schlag et al., 2021, "Linear Transformers Are Secretly Fast Weight
    Programmers", section 4; with a gate Yang et al., 2025, "Gated Delta Networks",
    section 3; with one for each feature Kimi Team, 2025, "Kimi Linear".
    """
    state = validate_stateful(q, k, v, state)
    log_decay = _validate_gates(k, beta, log_decay)
    outputs: list[Tensor] = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, :, None].exp()
        held = k[:, :, t, None, :] @ state  # (B, H, 1, d_v)
        change = beta[:, :, t, None, None] * (v[:, :, t, None, :] - held)
        state = state + k[:, :, t, :, None] * change
        outputs.append((q[:, :, t, None, :] @ state).squeeze(2))
    return torch.stack(outputs, dim=2), state


# --8<-- [start:parallel]
def parallel_delta_rule(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    beta: Float[Tensor, "B H T"],
    *,
    log_decay: Float[Tensor, "B H T *gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
) -> tuple[_Output, _State]:
    """Compute ``recurrent_delta_rule`` at all positions at once.

    What a token changes depends on the changes of all tokens before it, which makes a
    triangular system of T equations. With its solution in place of the values, the
    rest is linear attention.

    Sources: Yang et al., 2024, "Parallelizing Linear Transformers with the Delta Rule";
    with a gate Yang et al., 2025, "Gated Delta Networks", section 3.
    """
    state = validate_stateful(q, k, v, state)
    kept = _validate_gates(k, beta, log_decay).cumsum(dim=2)  # (B, H, T, gates)
    beta = beta[..., None]
    of_keys, of_queries = decayed_products(torch.stack([k, q]), k, kept)
    # Row t: the change at t, plus what earlier changes have left under key t.
    system = beta * of_keys
    missing = beta * (v - (k * kept.exp()) @ state)
    wide = torch.promote_types(system.dtype, torch.float32)  # no solver for 16 bits
    changes = torch.linalg.solve_triangular(
        system.to(wide), missing.to(wide), upper=False, unitriangular=True
    ).to(system.dtype)
    output = (q * kept.exp()) @ state + of_queries @ changes
    to_the_end = (kept[:, :, -1:] - kept).exp()
    left = state * kept[:, :, -1, :, None].exp()
    return output, left + (k * to_the_end).mT @ changes


# --8<-- [end:parallel]


def chunked_delta_rule(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    beta: Float[Tensor, "B H T"],
    *,
    log_decay: Float[Tensor, "B H T *gates"] | None = None,
    state: Float[Tensor, "B H d_k d_v"] | None = None,
    chunk_size: int | None = None,
) -> tuple[_Output, _State]:
    """Compute ``recurrent_delta_rule`` in chunks of tokens, side by side.

    A length that ``torch.compile`` or ``torch.export`` leaves open is one chunk. By
    default a chunk has 32 tokens, and 16 if each feature has a gate.

    Source: Yang et al., 2024, "Parallelizing Linear Transformers with the Delta Rule".
    """
    state = validate_stateful(q, k, v, state)
    log_decay = _validate_gates(k, beta, log_decay)
    if chunk_size is None:
        chunk_size = 32 if log_decay.shape[-1] == 1 else 16
    validate_sizes(chunk_size=chunk_size)
    if is_open(q.shape[2]) or q.shape[2] <= chunk_size:
        return parallel_delta_rule(q, k, v, beta, log_decay=log_decay, state=state)
    return in_chunks(_effect, (q, k, v, beta, log_decay), state, chunk_size)


def _effect(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor) -> Effect:
    """Return what these tokens do to a state.

    Beside the values, they get values of zero and begin with the identity: what comes
    of that multiplies any other state.
    """
    d_k, d_v = k.shape[-1], v.shape[-1]
    eye = torch.eye(d_k, dtype=k.dtype, device=k.device)
    output, state = parallel_delta_rule(
        q,
        k,
        F.pad(v, (0, d_k)),
        beta,
        log_decay=log_decay,
        state=F.pad(eye, (d_v, 0)).expand(*k.shape[:2], -1, -1),
    )
    own, reads = output.split([d_v, d_k], dim=-1)
    update, keeps = state.split([d_v, d_k], dim=-1)
    return own, reads, update, keeps


@dataclass(frozen=True, kw_only=True)
class DeltaRule(Stateful):
    """Attend with a state written by the delta rule, with ``DeltaAttention``.

    Args:
        gated: Let each token choose how much of the state it keeps.
        by_feature: Let it choose so for each feature of a key, as in Kimi Linear.

    Raises:
        ValueError: If gates are ``by_feature``, but there are none.
    """

    gated: bool = False
    by_feature: bool = False

    def __post_init__(self) -> None:
        if self.by_feature and not self.gated:
            raise ValueError("by_feature=True needs gated=True: it is about the gates")

    def make(self, settings: LayerSettings) -> "DeltaAttention":
        """Return a new layer."""
        return DeltaAttention(
            d_model=settings.d_model,
            num_heads=settings.num_heads,
            head_dim=settings.head_dim,
            bias=settings.bias,
            gated=self.gated,
            by_feature=self.by_feature,
            device=settings.device,
            dtype=settings.dtype,
        )


class DeltaAttention(StateLayer):
    """Several heads that write by the delta rule, with or without gates.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        bias: Whether the four projections add a bias.
        chunk_size: How many tokens make a chunk; see ``chunked_delta_rule``.
        gated: Let each token choose how much of the state each head keeps.
        by_feature: Let it choose so for each feature of a key.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Sources: Yang et al., 2025, "Gated Delta Networks", section 3; for gates by feature
    Kimi Team, 2025, "Kimi Linear". Their layers also have a short
    convolution and an output gate, and parameterize the decay differently.
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
        by_feature: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            bias=bias,
            chunk_size=(16 if by_feature else 32) if chunk_size is None else chunk_size,
            device=device,
            dtype=dtype,
        )
        self.beta_proj = nn.Linear(d_model, num_heads, device=device, dtype=dtype)
        self.gate_proj: nn.Linear | None = None
        if gated:
            width = num_heads * (self.head_dim if by_feature else 1)
            self.gate_proj = nn.Linear(d_model, width, device=device, dtype=dtype)

    def gates(
        self, x: Float[Tensor, "B T D"], like: Tensor
    ) -> tuple[Float[Tensor, "B H T gates"], ...]:
        """Return beta, and the logarithms of the gates if there are any."""
        beta = self.gate(self.beta_proj, x, like).sigmoid()
        if self.gate_proj is None:
            return (beta,)
        return beta, F.logsigmoid(self.gate(self.gate_proj, x, like)) / 16

    def mix(
        self,
        q: Float[Tensor, "B H T d_k"],
        writes: Writes,
        state: Float[Tensor, "B H d_k d_k"] | None,
    ) -> tuple[Float[Tensor, "B H T d_k"], _State]:
        """Write what the state lacks under each key."""
        k, v, beta, *gates = writes
        return chunked_delta_rule(
            q,
            k,
            v,
            beta.squeeze(-1),
            log_decay=gates[0] if gates else None,
            state=state,
            chunk_size=self.chunk_size,
        )


def _validate_gates(
    k: Tensor, beta: Tensor, log_decay: Tensor | None
) -> Float[Tensor, "B H T gates"]:
    """Return the logarithms of the gates, 0 if there are none, or refuse shapes."""
    validate_shape("beta", beta, (*k.shape[:3],))
    validate_kinds(k=k, beta=beta, log_decay=beta if log_decay is None else log_decay)
    if log_decay is None:
        return torch.zeros_like(beta)[..., None]
    if log_decay.shape not in (beta.shape, (*beta.shape, 1), k.shape):
        raise ValueError(
            f"log_decay must be {tuple(beta.shape)}, like beta, or {tuple(k.shape)}, "
            f"like k; it is {tuple(log_decay.shape)}"
        )
    return log_decay if log_decay.ndim == 4 else log_decay[..., None]
