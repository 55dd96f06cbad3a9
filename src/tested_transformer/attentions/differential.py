"""Differential attention: one table of weights minus a share of another.

The weight that both tables give to irrelevant keys cancels; what only the first table
gives remains.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.attention import attention_with_weights, repeat_heads
from tested_transformer.interfaces import LayerSettings
from tested_transformer.kernels import fused_attention
from tested_transformer.multihead import ScoreOptions, Softmax

__all__ = ["Differential", "DifferentialCore", "first_share"]


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


@dataclass(frozen=True, kw_only=True)
class Differential(Softmax):
    """Attend with the difference of two tables of weights.

    Head i and head i + H/2 are a pair. Each makes one table of weights, and both read
    one value, as wide as two heads. The output of each pair is normalized before the
    pairs are mixed. The share that is subtracted starts near ``first_share(layer)``.

    Source: Ye et al., 2024, "Differential Transformer", section 2.1. Heads are paired
    as in ``transformers``; the authors' code pairs neighbors.
    """

    weighs_by_head: ClassVar[bool] = False

    def make_core(self, settings: LayerSettings) -> "DifferentialCore":
        """Return what attends so, with the vectors that the share is made of.

        Raises:
            ValueError: If a number of heads is odd, or ``layer`` is negative.
        """
        return DifferentialCore(settings)


class DifferentialCore(nn.Module):
    """What attends in a layer with ``Differential``, and its parameters."""

    row_vectors = ("share_q", "share_k")  # each row is a vector

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        for name in ("num_heads", "num_kv_heads"):
            if getattr(settings, name) % 2:
                raise ValueError(
                    f"{name}={getattr(settings, name)} must be even: heads come in "
                    "pairs"
                )
        self.first_share = first_share(settings.layer)
        # Two vectors for each of the two tables.
        shape, on, dtype = (2, settings.head_dim), settings.device, settings.dtype
        self.share_q = nn.Parameter(torch.empty(shape, device=on, dtype=dtype))
        self.share_k = nn.Parameter(torch.empty(shape, device=on, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the shares again."""
        nn.init.normal_(self.share_q, std=0.1)
        nn.init.normal_(self.share_k, std=0.1)

    def share(self) -> Float[Tensor, ""]:
        """Return the share of the second table that is subtracted from the first."""
        first, second = (self.share_q * self.share_k).sum(dim=-1).exp()
        return first - second + self.first_share

    # --8<-- [start:attend]
    def forward(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Float[Tensor, "B pairs T d_v"], Float[Tensor, "B pairs T S"] | None]:
        """Subtract the tables or, which is equivalent, what they read."""
        values = torch.cat(v.chunk(2, dim=1), dim=-1)  # (B, H_kv / 2, S, 2 * d_k)
        if in_the_open:
            _, weights = attention_with_weights(q, k, v, **options)
            kept = self._difference(F.dropout(weights, options["dropout_p"]))
            weights = self._difference(weights)  # (B, H / 2, T, S)
            heads = kept @ repeat_heads(values, weights)
        else:
            weights = None
            read = fused_attention(q, k, values.repeat(1, 2, 1, 1), **options)
            heads = self._difference(read)
        heads = F.rms_norm(heads, heads.shape[-1:], eps=1e-5)
        return (1 - self.first_share) * heads, weights

    def _difference(self, pairs: Tensor) -> Tensor:
        first, second = pairs.chunk(2, dim=1)
        return first - self.share() * second

    # --8<-- [end:attend]
