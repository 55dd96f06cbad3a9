"""Chosen keys: an indexer, a small attention of its own, picks the keys of each query.

The indexer scores every earlier token, with few heads and short vectors, and attention
reads the best of them. It learns from the weights of attention, by a loss of its own.
The open form turns the choice into a mask; the fast form gathers keys for few queries.
"""

from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.attention import and_causal, attention_weights
from tested_transformer.checks import validate_sizes, validate_switches
from tested_transformer.inspection import is_open
from tested_transformer.interfaces import LayerSettings
from tested_transformer.multihead import (
    IndexedCore,
    ScoreOptions,
    Softmax,
    attend,
    merge_heads,
    split_heads,
)
from tested_transformer.positions import rotate

__all__ = [
    "ChosenKeys",
    "Indexer",
    "IndexerCore",
    "attention_to_chosen",
    "choose_keys",
    "index_loss",
    "index_scores",
    "rounded_to_fp8",
]


# --8<-- [start:scores]
def index_scores(
    q: Float[Tensor, "B H_I T d_I"],
    k: Float[Tensor, "B S d_I"],
    weights: Float[Tensor, "B T H_I"],
) -> Float[Tensor, "B T S"]:
    """Return one score for each query and key: a sum over the heads of the indexer.

    Args:
        q: Queries of the indexer.
        k: Its keys, one for all heads.
        weights: What each query multiplies its heads by.

    Source: DeepSeek-AI, 2025, "DeepSeek-V3.2", equation 1; the two factors are those of
    its published code.
    """
    products = F.relu(q @ k[:, None].mT * q.shape[-1] ** -0.5)  # (B, H_I, T, S)
    weights = weights * weights.shape[-1] ** -0.5
    return (weights.mT[..., None] * products).sum(dim=1)


# --8<-- [end:scores]


# --8<-- [start:choose]
def choose_keys(
    scores: Float[Tensor, "B T S"], keys_per_query: int
) -> Bool[Tensor, "B T S"]:
    """Return ``True`` for the keys with the best scores; of equal ones, the earliest.

    ReLU makes many scores exactly 0, and the choice must not depend on how many other
    keys there are.

    Args:
        scores: The score of each key, or minus infinity where a query may not read.
        keys_per_query: How many keys a query reads, if it may read as many.

    Raises:
        ValueError: If ``keys_per_query`` is not positive.
    """
    validate_sizes(keys_per_query=keys_per_query)
    # There are always enough columns, however many keys there are.
    enough = F.pad(scores, (0, keys_per_query), value=float("-inf"))
    last = enough.topk(keys_per_query, dim=-1).values[..., -1:]
    better, equal = scores > last, scores == last
    room = keys_per_query - better.sum(dim=-1, keepdim=True)
    chosen = better | (equal & (equal.cumsum(dim=-1) <= room))
    return chosen & (scores > float("-inf"))


# --8<-- [end:choose]


# --8<-- [start:loss]
def index_loss(
    scores: Float[Tensor, "B T S"],
    weights: Float[Tensor, "B H T S"],
    read: Bool[Tensor, "B T S"],
) -> Float[Tensor, ""]:
    """Return the KL divergence of the indexer's softmax from the weights of attention.

    The weights, added up over the heads and divided by their number, are the target and
    get no gradient. It is the mean over all queries.

    Args:
        scores: The scores of the indexer.
        weights: The weights of attention, after its softmax.
        read: ``True`` for the keys that attention has read, to which both
            distributions are restricted.

    Source: DeepSeek-AI, 2025, "DeepSeek-V3.2", equations 3 and 4.
    """
    target = weights.detach().mean(dim=1)
    # Finite, so that a query that reads nothing has a gradient of 0, not NaN.
    scores = scores.masked_fill(~read, torch.finfo(scores.dtype).min)
    shares = scores.log_softmax(dim=-1)
    return F.kl_div(shares, target, reduction="none").sum(dim=-1).mean()


# --8<-- [end:loss]


# --8<-- [start:gathered]
def attention_to_chosen(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    chosen: Bool[Tensor, "B T S"],
    *,
    keys_per_query: int,
) -> Float[Tensor, "B H T d_v"]:
    """Return attention with ``chosen`` as its mask, reading only the chosen keys.

    It copies the keys and values of each query, so it pays for few queries.

    Args:
        q: Queries.
        k: Keys; with fewer heads than ``q`` if heads share them.
        v: Values, one for each key.
        chosen: The result of ``choose_keys``.
        keys_per_query: How many keys a query has chosen at most.
    """
    picked = chosen.byte().topk(min(keys_per_query, chosen.shape[-1]), dim=-1)
    # (B, H_kv, T, chosen, d): the keys and values of each query.
    k, v = (
        x[:, :, None]
        .expand(-1, -1, q.shape[2], -1, -1)
        .gather(
            3,
            picked.indices[:, None, ..., None].expand(
                -1, x.shape[1], -1, -1, x.shape[-1]
            ),
        )
        for x in (k, v)
    )
    groups = q.unflatten(1, (k.shape[1], -1)).transpose(2, 3)  # (B, H_kv, T, group, d)
    scores = groups @ k.mT * q.shape[-1] ** -0.5
    weights = attention_weights(scores, picked.values.bool()[:, None, :, None])
    return (weights @ v).transpose(2, 3).flatten(1, 2)


# --8<-- [end:gathered]


# --8<-- [start:fp8]
def rounded_to_fp8(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    """Round each vector to 8-bit floats (e4m3), after scaling its largest entry to 448.

    Gradients pass as if nothing was rounded.
    """
    scale = x.detach().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 448
    low = (x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale
    return x + (low - x).detach()


# --8<-- [end:fp8]


# --8<-- [start:layer]
@dataclass(frozen=True, kw_only=True)
class ChosenKeys(Softmax):
    """Let an indexer choose the keys that each query reads, the same for all heads.

    The language model's loss does not reach the indexer, and the indexer's loss nothing
    else. A mask or a window hides keys before the choice. With as many keys as there
    are, a layer computes the same as ``MultiHeadAttention``.

    Args:
        keys_per_query: How many keys a query reads.
        index_heads: Heads of the indexer.
        index_dim: The width of its queries and keys; ``head_dim`` by default.
        dense: Read all keys, while the indexer learns from them: the first stage of its
            training, which DeepSeek begins with a trained model.
        fp8: Round the indexer's queries and keys to 8-bit floats.

    Raises:
        ValueError: If a size is not positive.

    Source: DeepSeek-AI, 2025, "DeepSeek-V3.2: Pushing the Frontier of Open Large
    Language Models", section 2.1.
    """

    keys_per_query: int = 16
    index_heads: int = 2
    index_dim: int | None = None
    dense: bool = False
    fp8: bool = False

    keeps_heads: ClassVar[bool] = False  # the indexer's keys lie in the cache, too

    def __post_init__(self) -> None:
        validate_sizes(
            keys_per_query=self.keys_per_query,
            index_heads=self.index_heads,
            index_dim=1 if self.index_dim is None else self.index_dim,
        )
        validate_switches(dense=self.dense, fp8=self.fp8)

    def make_core(self, settings: LayerSettings) -> "IndexerCore":
        """Return what chooses keys and attends to them, with its indexer."""
        return IndexerCore(self, settings)


class Indexer(nn.Module):
    """The projections of an indexer; it has one key for all of its heads.

    Args:
        d_model: D, the width of the sequence.
        num_heads: H_I, how many heads.
        head_dim: d_I, the width of a query or key.
        device: Where to make the parameters.
        dtype: The type of the parameters.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.q_proj, self.k_proj, self.weight_proj = (
            nn.Linear(d_model, width, bias=False, device=device, dtype=dtype)
            for width in (num_heads * head_dim, head_dim, num_heads)
        )
        self.k_norm = nn.LayerNorm(head_dim, eps=1e-6, device=device, dtype=dtype)

    def queries(
        self, x: Float[Tensor, "B T D"], rotary: Tensor | None
    ) -> Float[Tensor, "B H_I T d_I"]:
        """Return the queries of a sequence."""
        return self._turned(split_heads(self.q_proj(x), self.num_heads), rotary)

    def keys(
        self, x: Float[Tensor, "B T D"], rotary: Tensor | None
    ) -> Float[Tensor, "B T d_I"]:
        """Return the keys of a sequence."""
        return self._turned(self.k_norm(self.k_proj(x))[:, None], rotary)[:, 0]

    def _turned(self, heads: Tensor, rotary: Tensor | None) -> Tensor:
        """Rotate the first features, as many as the table is for."""
        if rotary is None:
            return heads
        if rotary.ndim > 3:
            rotary = rotary[:, :, :1]  # of the first head, if each has its own
        half = min(rotary.shape[-1], self.head_dim // 2)
        turning, still = heads.split([2 * half, self.head_dim - 2 * half], dim=-1)
        return torch.cat([rotate(turning, rotary[..., :half]), still], dim=-1)


class IndexerCore(IndexedCore):
    """What attends in a layer with ``ChosenKeys``, and its indexer.

    Attributes:
        indexer: The indexer.
        index_loss: Its loss in the last forward pass while training.
    """

    def __init__(self, chosen: ChosenKeys, settings: LayerSettings) -> None:
        super().__init__()
        self.chosen = chosen
        width = settings.head_dim if chosen.index_dim is None else chosen.index_dim
        self.indexer = Indexer(
            d_model=settings.d_model,
            num_heads=chosen.index_heads,
            head_dim=width,
            device=settings.device,
            dtype=settings.dtype,
        )
        # A slice of the indexer's key lies behind the key of each head.
        self.index_width = -(-width // settings.num_kv_heads)

    # --8<-- [start:attend]
    def add_index(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"],
        rotary: Float[Tensor, "2 *table T half"] | None,
    ) -> tuple[Tensor, Tensor]:
        """Put slices of the indexer's queries and keys behind those of the heads."""
        # The indexer learns from its own loss alone.
        asking = merge_heads(self.indexer.queries(x.detach(), rotary))
        keys = self.indexer.keys(context.detach(), rotary)
        return _behind(q, asking), _behind(k, keys)

    def forward(
        self,
        q: Float[Tensor, "B H T with_index"],
        k: Float[Tensor, "B H_kv S with_index_key"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Float[Tensor, "B H T d_k"], Float[Tensor, "B H T S"] | None]:
        """Score all keys with the indexer, and attend to the best."""
        width = v.shape[-1]
        scores = self._scores(q[..., width:], k[..., width:], x)
        q, k, mask = q[..., :width], k[..., :width], options["mask"]
        if options["causal"] or options["window"] is not None:
            mask = and_causal(mask, q, k, options["window"])
        options.update(mask=mask, causal=False, window=None)
        hidden = _hidden(mask, options["score_bias"])
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        if self.chosen.dense:
            chosen = scores > float("-inf")
        else:
            chosen = choose_keys(scores, self.chosen.keys_per_query)
        learning = self.training and torch.is_grad_enabled()
        if not (in_the_open or learning) and self._gathers(chosen, options):
            most = self.chosen.keys_per_query
            return attention_to_chosen(q, k, v, chosen, keys_per_query=most), None
        only = chosen[:, None]
        options["mask"] = only if mask is None else only & mask
        heads, weights = attend(q, k, v, in_the_open=in_the_open or learning, **options)
        if learning and weights is not None:
            self.index_loss = index_loss(scores, weights, chosen)
        return heads, weights

    def _scores(self, asking: Tensor, keys: Tensor, x: Tensor) -> Tensor:
        """Put slices together again, and score."""
        indexer = self.indexer
        q = merge_heads(asking)[..., : indexer.num_heads * indexer.head_dim]
        q = split_heads(q, indexer.num_heads)
        k = merge_heads(keys)[..., : indexer.head_dim]
        if self.chosen.fp8:
            q, k = rounded_to_fp8(q), rounded_to_fp8(k)
        return index_scores(q, k, indexer.weight_proj(x.detach()))

    def _gathers(self, chosen: Tensor, options: ScoreOptions) -> bool:
        """Return whether copying what queries chose is less than reading all keys."""
        num_queries, num_keys = chosen.shape[1:]
        mask = options["mask"]
        if is_open(num_queries) or is_open(num_keys) or self.chosen.dense:
            return False
        alike = mask is None or mask.ndim < 3 or mask.shape[-3] == 1  # for all heads
        plain = options["score_bias"] is None and options["dropout_p"] == 0.0
        copied = num_queries * self.chosen.keys_per_query
        return alike and plain and copied < num_keys

    # --8<-- [end:attend]


# --8<-- [end:layer]


def _behind(heads: Tensor, index: Float[Tensor, "B T width"]) -> Tensor:
    """Cut an index into a slice for each head, the last with zeros, and append it."""
    padded = F.pad(index, (0, -index.shape[-1] % heads.shape[1]))
    return torch.cat([heads, split_heads(padded, heads.shape[1])], dim=-1)


def _hidden(mask: Tensor | None, score_bias: Tensor | None) -> Tensor | None:
    """Return ``True`` where no head of a query may read a key, (B, T, S)."""
    if score_bias is not None:
        allowed = score_bias > float("-inf")
        mask = allowed if mask is None else mask & allowed
    if mask is None:
        return None
    return ~mask.any(dim=-3) if mask.ndim > 2 else ~mask
