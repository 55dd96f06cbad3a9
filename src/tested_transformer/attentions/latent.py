"""Multi-head latent attention: keys and values computed from a small latent per token.

The cache holds one short vector for each token, from which every head computes its key
and its value. It can also do without computing them: the matrices that would do so can
be absorbed into the query and the output instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.cache import DenseCache, LayerCache
from tested_transformer.checks import (
    validate_between,
    validate_choice,
    validate_features,
    validate_sizes,
)
from tested_transformer.inspection import is_plain, numbers_of
from tested_transformer.interfaces import LayerSettings
from tested_transformer.layers import HeadNorm
from tested_transformer.multihead import attend, merge_heads, split_heads
from tested_transformer.positions import PAIRINGS, rotate

__all__ = ["Latent", "LatentAttention"]

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]
# Attends with queries, keys and values.
_Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Attend to one latent vector per token, with ``LatentAttention``.

    Args:
        latent_dim: Width of the vector that is kept for each token; ``2 * head_dim`` by
            default.

    Raises:
        ValueError: If ``latent_dim`` is not positive.
    """

    latent_dim: int | None = None

    positions: ClassVar[tuple[str, ...]] = ("rotary",)
    unsupported: ClassVar[tuple[str, ...]] = (
        "num_kv_heads",
        "qk_norm",
        "softmax_every",
    )
    has_scores: ClassVar[bool] = True
    keeps_heads: ClassVar[bool] = False
    weighs_by_head: ClassVar[bool] = True
    reads_padding: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.latent_dim is not None:
            validate_sizes(latent_dim=self.latent_dim)

    def make(self, settings: LayerSettings) -> "LatentAttention":
        """Return a new layer, whose rotary part is as wide as a model's table."""
        latent_dim, head_dim = self.latent_dim, settings.head_dim
        return LatentAttention(
            d_model=settings.d_model,
            num_heads=settings.num_heads,
            head_dim=head_dim,
            rotary_dim=head_dim,
            latent_dim=2 * head_dim if latent_dim is None else latent_dim,
            dropout=settings.dropout,
            bias=settings.bias,
            fused=settings.fused,
            device=settings.device,
            dtype=settings.dtype,
        )


class LatentAttention(nn.Module):
    """Attend with many heads to one latent vector per token.

    A token's *entry* is its latent, followed by one rotary key that all heads share:
    ``latent_dim + rotary_dim`` numbers, however many heads there are. A head's key is
    computed from the latent, with the rotary key appended; its value is computed from
    the latent.

    Args:
        d_model: D, the width of the sequence.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a query or key without the rotary part.
        rotary_dim: r, the width of the rotary part; even.
        latent_dim: d_c, the width of the latent that keys and values come from.
        value_dim: d_v, the width of a head's value; ``head_dim`` by default.
        query_latent_dim: The width of a latent that queries come from; by default
            they come from the sequence directly.
        dropout: The probability of dropping an attention weight while training.
        bias: Whether the projections from and to the sequence add a bias; the one to
            queries never does.
        pairing: Which features of the rotary part are pairs, one of
            ``positions.PAIRINGS``; DeepSeek pairs neighbors.
        absorbed: Compute the absorbed form (True), the naive form (False), or
            whichever takes fewer multiplications (None). It is always the naive form
            if another module takes the place of ``kv_up``, or hooks are on it: the
            absorbed one uses its matrix, and does not call it.
        fused: Use PyTorch's fused kernels unless weights are asked for.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Raises:
        ValueError: If a size is not positive, ``rotary_dim`` is odd, ``dropout`` is not
            in [0, 1], or ``pairing`` is unknown.

    Sources: DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1; "DeepSeek-V3 Technical
    Report", section 2.1.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int,
        rotary_dim: int,
        latent_dim: int,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        pairing: str = "neighbors",
        absorbed: bool | None = None,
        fused: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        value_dim = head_dim if value_dim is None else value_dim
        validate_sizes(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            rotary_dim=rotary_dim,
            latent_dim=latent_dim,
            value_dim=value_dim,
            query_latent_dim=1 if query_latent_dim is None else query_latent_dim,
        )
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim={rotary_dim} must be even")
        validate_between("dropout", dropout, 0, 1)
        validate_choice("pairing", pairing, PAIRINGS)
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim, self.rotary_dim = head_dim, rotary_dim
        self.latent_dim, self.value_dim = latent_dim, value_dim
        self.dropout, self.pairing = dropout, pairing
        self.absorbed, self.fused = absorbed, fused
        on = device
        d_q = num_heads * (head_dim + rotary_dim)
        if query_latent_dim is None:
            self.q_proj = nn.Linear(d_model, d_q, bias=False, device=on, dtype=dtype)
        else:
            self.q_proj = nn.Sequential(
                nn.Linear(d_model, query_latent_dim, bias=bias, device=on, dtype=dtype),
                HeadNorm(query_latent_dim, eps=1e-6, device=on, dtype=dtype),
                nn.Linear(query_latent_dim, d_q, bias=False, device=on, dtype=dtype),
            )
        self.kv_down = nn.Linear(
            d_model, latent_dim + rotary_dim, bias=bias, device=on, dtype=dtype
        )
        self.kv_norm = HeadNorm(latent_dim, eps=1e-6, device=on, dtype=dtype)
        d_kv = num_heads * (head_dim + value_dim)
        self.kv_up = nn.Linear(latent_dim, d_kv, bias=False, device=on, dtype=dtype)
        self.o_proj = nn.Linear(
            num_heads * value_dim, d_model, bias=bias, device=on, dtype=dtype
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        window: int | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Return what every position gathers from those that it may attend to.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend, as in ``MultiHeadAttention``.
            causal: Also forbid attending to later positions.
            window: Also forbid all but the last ``window`` positions up to each.
            score_bias: Add this to the scores.
            rotary: Rotate the rotary part by this ``rotary_table`` of the positions,
                made for ``rotary_dim`` features.
            cache: Attend to the entries in it as well, and add those of ``x`` to it.
                It has one head of keys, ``latent_dim + rotary_dim`` wide, and values of
                width 0, because the values are part of the keys.
            return_weights: Also return the weights of every head, before dropout.

        Returns:
            The output, or the output and the weights.

        Raises:
            TypeError: If ``mask`` is not boolean.
            ValueError: If shapes do not fit.
        """
        self._validate(x, rotary)
        q, entries = self._queries_and_entries(x, rotary)
        if cache is not None:
            entries, _ = cache.append(entries, entries[..., :0])
        attend_here = partial(
            attend,
            in_the_open=return_weights or not self.fused,
            scale=(self.head_dim + self.rotary_dim) ** -0.5,
            mask=mask,
            causal=causal,
            window=window,
            score_bias=score_bias,
            dropout_p=self.dropout if self.training else 0.0,
        )
        absorbed = self.absorbed
        if absorbed is None:
            naive_count, absorbed_count = self.multiplications(
                q.shape[2], entries.shape[2]
            )
            absorbed = absorbed_count < naive_count
        if not is_plain(self.kv_up, nn.Linear):
            absorbed = False
        form = self._attend_absorbed if absorbed else self._attend_naive
        heads, weights = form(q, entries, attend_here)
        output = self.o_proj(merge_heads(heads))
        return output if weights is None or not return_weights else (output, weights)

    def _queries_and_entries(
        self, x: Tensor, rotary: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return queries, (B, H, T, d_k + r), and entries, (B, 1, T, d_c + r)."""
        q = split_heads(self.q_proj(x), self.num_heads)
        q, q_turning = q.split([self.head_dim, self.rotary_dim], dim=-1)
        entries = self.kv_down(x)[:, None]
        latent, k_turning = entries.split([self.latent_dim, self.rotary_dim], dim=-1)
        if rotary is not None:
            q_turning = rotate(q_turning, rotary, pairing=self.pairing)
            k_turning = rotate(k_turning, rotary, pairing=self.pairing)
        q = torch.cat([q, q_turning], dim=-1)
        return q, torch.cat([self.kv_norm(latent), k_turning], dim=-1)

    # --8<-- [start:naive]
    def _attend_naive(
        self, q: Tensor, entries: Tensor, attend_here: _Attend
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the key and the value of every head, and attend as usual."""
        latent, turning = entries.split([self.latent_dim, self.rotary_dim], dim=-1)
        kv = split_heads(self.kv_up(latent[:, 0]), self.num_heads)
        k, v = kv.split([self.head_dim, self.value_dim], dim=-1)
        k = torch.cat([k, turning.expand(-1, self.num_heads, -1, -1)], dim=-1)
        return attend_here(q, k, v)

    # --8<-- [end:naive]

    # --8<-- [start:absorbed]
    def _attend_absorbed(
        self, q: Tensor, entries: Tensor, attend_here: _Attend
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the entries: one key for all heads, with the latent as its value.

        If ``up_k`` computes a head's key from the latent ``c``, ``q @ (c @ up_k.T).T``
        equals ``(q @ up_k) @ c.T``. Likewise for the value ``weights @ (c @ up_v.T)``
        equals ``(weights @ c) @ up_v.T``.
        """
        up = self.kv_up.weight.unflatten(0, (self.num_heads, -1))
        up_k, up_v = up.split([self.head_dim, self.value_dim], dim=1)
        q, turning = q.split([self.head_dim, self.rotary_dim], dim=-1)
        q = torch.cat([q @ up_k, turning], dim=-1)  # (B, H, T, d_c + r)
        heads, weights = attend_here(q, entries, entries[..., : self.latent_dim])
        return heads @ up_v.mT, weights

    # --8<-- [end:absorbed]

    def multiplications(self, num_queries: int, num_keys: int) -> tuple[int, int]:
        """Count the multiplications for one sequence, in the naive form and absorbed.

        The count leaves out what both forms share, such as the projections from and to
        the sequence. It includes all pairs of query and key, masked or not.
        """
        key, value, latent = self.head_dim, self.value_dim, self.latent_dim
        pairs, up = num_queries * num_keys, latent * (key + value)
        naive = num_keys * up + pairs * (key + self.rotary_dim + value)
        absorbed = num_queries * up + pairs * (latent + self.rotary_dim + latent)
        return self.num_heads * naive, self.num_heads * absorbed

    def new_cache(self, batch_size: int, max_length: int) -> DenseCache:
        """Return an empty cache for the entries of this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for.
        """
        shape = batch_size, 1, max_length
        like = numbers_of(self)
        entries = like.new_zeros(*shape, self.latent_dim + self.rotary_dim)
        return DenseCache(entries, like.new_zeros(*shape, 0))

    def _validate(self, x: Tensor, rotary: Tensor | None) -> None:
        validate_features("x", x, self.d_model)
        if rotary is not None and 2 * rotary.shape[-1] != self.rotary_dim:
            raise ValueError(
                f"rotary must be a table for rotary_dim={self.rotary_dim}; "
                f"it is for {2 * rotary.shape[-1]}"
            )

    def extra_repr(self) -> str:
        """Show the settings that the projections do not show."""
        return (
            f"num_heads={self.num_heads}, head_dim={self.head_dim}, "
            f"rotary_dim={self.rotary_dim}, value_dim={self.value_dim}, "
            f"dropout={self.dropout}, pairing={self.pairing!r}, "
            f"absorbed={self.absorbed}, fused={self.fused}"
        )
