"""Differential attention: one table of weights minus a share of another.

The weight that both tables give to irrelevant keys cancels; what only the first table
gives remains.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.attention import attention_with_weights, repeat_heads
from tested_transformer.attentions.softmaxes import AttentionLayer
from tested_transformer.kernels import fused_attention
from tested_transformer.validation import validate_heads

__all__ = ["DifferentialAttention", "first_share"]


# --8<-- [start:share]
def first_share(layer: int) -> float:
    """Return the initial share of a layer: 0.2 in the first, approaching 0.8.

    Args:
        layer: The number of the layer, from 0.

    Raises:
        ValueError: If ``layer`` is negative.

    Source: Ye et al., 2024, "Differential Transformer", section 2.1.
    """
    if layer < 0:
        raise ValueError(f"layer={layer} must not be negative")
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


# --8<-- [end:share]


# --8<-- [start:layer]
class DifferentialAttention(AttentionLayer):
    """Attend with the difference of two tables of weights.

    Head i and head i + H/2 are a pair. Each makes one table of weights, and both read
    one value, as wide as two heads. The output of each pair is normalized before the
    pairs are mixed.

    Args:
        d_model: D, the width of the sequence.
        num_heads: H, how many tables of weights, two for each pair: as many as a
            ``MultiHeadAttention`` of this size has heads.
        layer: The number of the layer, from 0. The share starts near
            ``first_share(layer)``.
        head_dim: d_k, the width of a query or key; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        bias: Whether the four projections add a bias.
        fused: Use PyTorch's fused kernels unless weights are asked for.

    Raises:
        ValueError: If heads do not fit, their number is odd, or ``layer`` is negative.

    Source: Ye et al., 2024, "Differential Transformer", section 2.1. Heads are paired
    as in ``transformers``; the authors' code pairs neighbors.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        layer: int = 0,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        bias: bool = False,
        fused: bool = True,
    ) -> None:
        validate_heads(d_model, num_heads, head_dim, num_kv_heads)
        for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            if count is not None and count % 2:
                raise ValueError(f"{name}={count} must be even: heads come in pairs")
        super().__init__(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            num_kv_heads=num_kv_heads,
            bias=bias,
            fused=fused,
        )
        self.first_share = first_share(layer)
        # Two vectors for each of the two tables.
        self.share_q = nn.Parameter(torch.empty(2, self.head_dim))
        self.share_k = nn.Parameter(torch.empty(2, self.head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the shares again. The model initializes the projections."""
        nn.init.normal_(self.share_q, std=0.1)
        nn.init.normal_(self.share_k, std=0.1)

    def share(self) -> Float[Tensor, ""]:
        """Return the share of the second table that is subtracted from the first."""
        first, second = (self.share_q * self.share_k).sum(dim=-1).exp()
        return first - second + self.first_share

    # --8<-- [start:attend]
    def attend(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        how: dict[str, Any],
        *,
        in_the_open: bool,
    ) -> tuple[Float[Tensor, "B *pairs T d_v"], Float[Tensor, "B *pairs T S"] | None]:
        """Subtract the tables or, which is equivalent, what they read."""
        values = torch.cat(v.chunk(2, dim=1), dim=-1)  # (B, H_kv / 2, S, 2 * d_k)
        if in_the_open:
            _, weights = attention_with_weights(q, k, v, **how)
            first, second = weights.chunk(2, dim=1)  # (B, H / 2, T, S)
            weights = first - self.share() * second
            heads = weights @ repeat_heads(values, weights)
        else:
            weights = None
            read = fused_attention(q, k, values.repeat(1, 2, 1, 1), **how)
            first, second = read.chunk(2, dim=1)
            heads = first - self.share() * second
        heads = F.rms_norm(heads, heads.shape[-1:], eps=1e-5)
        return (1 - self.first_share) * heads, weights

    # --8<-- [end:attend]


# --8<-- [end:layer]
