"""Compressed keys: attention to the last tokens, and to one entry for several before.

An *entry* is one vector, key and value at once, pooled from several tokens by learned
gates. A query reads the tokens in its window and the entries whose tokens are all past,
or the best of these, which an indexer chooses. The cache keeps entries, not tokens.

Source of the whole: DeepSeek-AI, 2026, "DeepSeek-V4: Towards Highly Efficient
Million-Token Context Intelligence", section 2.3.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.attentions.indexer import choose_keys, index_loss, index_scores
from tested_transformer.attentions.softmaxes import (
    adjusted_attention_with_weights,
    fused_attention_with_sink,
)
from tested_transformer.cache import (
    Cache,
    DenseCache,
    KVCache,
    WindowCache,
    validate_rewind,
    window_room,
)
from tested_transformer.checks import (
    validate_attention,
    validate_between,
    validate_features,
    validate_sizes,
    validate_switches,
)
from tested_transformer.inspection import is_open, numbers_of
from tested_transformer.interfaces import LayerSettings
from tested_transformer.layers import HeadNorm
from tested_transformer.masks import sliding_window_mask
from tested_transformer.multihead import IndexTrained, merge_heads, split_heads
from tested_transformer.positions import POSITIONS, rotate

__all__ = [
    "Compressed",
    "CompressedAttention",
    "CompressedCache",
    "Compressor",
    "EntryIndexer",
    "attention_in_windows",
    "entries_past",
    "pool",
    "seen_in_windows",
    "with_group_before",
]

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]
_ROWS = 128  # how many queries share the tokens of a window


# --8<-- [start:pool]
def pool(
    content: Float[Tensor, "B n m d"], gates: Float[Tensor, "B n m d"]
) -> Float[Tensor, "B n d"]:
    """Return the mean of each group of tokens, each feature weighted by its own gates.

    Args:
        content: What each of the m tokens of a group contributes.
        gates: Scores; their softmax over the tokens of a group are the weights.
    """
    return (gates.softmax(dim=2) * content).sum(dim=2)


def with_group_before(
    groups: Float[Tensor, "B n m both"], fill: float
) -> Float[Tensor, "B n two_m d"]:
    """Return the tokens of each group behind those of the group before it.

    Args:
        groups: Two vectors of each token, side by side: what it contributes to the
            entry of the next group, and to that of its own.
        fill: What stands for the group before the first.
    """
    to_next, to_own = groups.chunk(2, dim=-1)
    before = F.pad(to_next, (0, 0, 0, 0, 1, 0), value=fill)[:, :-1]
    return torch.cat([before, to_own], dim=2)


# --8<-- [end:pool]


# --8<-- [start:seen]
def entries_past(
    num_queries: int,
    num_entries: int,
    *,
    compress: int,
    first: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T E"]:
    """Return ``True`` where no token of an entry is later than the query.

    Args:
        num_queries: T, how many queries.
        num_entries: E, how many entries, from the first of the text on.
        compress: How many tokens make an entry.
        first: The position of the first query.
        device: Where to make the mask.
    """
    positions = torch.arange(first, first + num_queries, device=device)
    last_tokens = compress * torch.arange(1, num_entries + 1, device=device) - 1
    return last_tokens <= positions[:, None]


def seen_in_windows(
    num_tokens: int, readable: Bool[Tensor, "*batch T E"], *, window: int
) -> Bool[Tensor, "*batch T S_and_E"]:
    """Return which tokens and entries queries see: their windows, and what is readable.

    Args:
        num_tokens: S, how many tokens there are, up to that of the last query.
        readable: ``True`` where a query may read an entry.
        window: How many tokens a query sees, including its own.
    """
    near = sliding_window_mask(
        readable.shape[-2], num_tokens, window=window, device=readable.device
    )
    return torch.cat([near.expand(*readable.shape[:-1], -1), readable], dim=-1)


# --8<-- [end:seen]


# --8<-- [start:windows]
def attention_in_windows(
    q: Float[Tensor, "B H T d"],
    tokens: Float[Tensor, "B 1 S d"],
    entries: Float[Tensor, "B 1 E d"],
    sink: Float[Tensor, "H"],
    readable: Bool[Tensor, "*batch T E"],
    *,
    window: int,
    entries_per_query: int | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T d"]:
    """Return attention under ``seen_in_windows``, without a score for every token.

    Blocks of queries get the tokens in their reach, and all entries. If few queries
    read few entries, each gets copies of its own.

    Args:
        q: Queries; the last one is that of the last token.
        tokens: The key and value of each token.
        entries: The key and value of each entry.
        sink: The score of a key without a value, one for each head.
        readable: ``True`` where a query may read an entry.
        window: How many tokens a query sees, including its own.
        entries_per_query: How many entries are readable at most; all by default.
        dropout_p: The probability of dropping a weight.
    """
    length, most = q.shape[2], entries_per_query
    gathers = most is not None and length * most < entries.shape[2]
    rows = 1 if gathers else min(_ROWS, length)
    blocks = -(-length // rows)
    behind, after = min(window, tokens.shape[2]) - 1, blocks * rows - length
    missing = behind + length - tokens.shape[2]  # before the first token
    near = F.pad(tokens, (0, 0, missing, after)).unfold(2, behind + rows, rows).mT
    mask = sliding_window_mask(rows, behind + rows, window=behind + 1, device=q.device)
    slots = torch.arange(behind + rows, device=q.device)
    starts = rows * torch.arange(blocks, device=q.device)
    mask = mask & (starts[:, None, None] + slots >= missing)  # (blocks, rows, slots)
    far = entries[:, :, None].expand(-1, -1, blocks, -1, -1)
    if gathers:
        picked = readable.byte().topk(most, dim=-1)  # (B, 1, T, most)
        index = picked.indices[..., None].expand(-1, -1, -1, -1, q.shape[-1])
        far, allowed = far.gather(3, index), picked.values.bool()[..., None, :]
    else:
        allowed = F.pad(readable, (0, 0, 0, after)).unflatten(-2, (blocks, rows))
    parts = [x.expand(len(q), 1, blocks, rows, -1) for x in (mask, allowed)]
    mask, keys = torch.cat(parts, dim=-1), torch.cat([near, far], dim=3)
    q = F.pad(q, (0, 0, 0, after)).unflatten(2, (blocks, rows))
    q, keys, mask = (x.transpose(1, 2).flatten(0, 1) for x in (q, keys, mask))
    heads = fused_attention_with_sink(
        q, keys, keys, sink, mask=mask, dropout_p=dropout_p
    )
    heads = heads.unflatten(0, (-1, blocks)).transpose(1, 2)
    return heads.flatten(2, 3)[:, :, :length]


# --8<-- [end:windows]


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """Attend to a window of tokens and to compressed entries; causal attention only.

    DeepSeek-V4's layers are ``Compressed(compress=128, window=128)``, its heavily
    compressed attention, and ``Compressed(compress=4, window=128, overlap=True,
    entries_per_query=512)``, its compressed sparse attention.

    Args:
        compress: How many tokens make an entry.
        window: How many tokens a query reads as they are, including its own.
        overlap: Pool each group of tokens together with the one before it.
        entries_per_query: Let an indexer choose so many entries for each query; it
            learns by ``GPT.index_loss()``. By default a query reads all of the past.
        index_heads: Heads of the indexer.
        index_dim: The width of its queries and keys; ``head_dim`` by default.

    Raises:
        ValueError: If a size is not positive, or a setting is about an indexer, but
            there is none.
    """

    compress: int = 4
    window: int = 16
    overlap: bool = False
    entries_per_query: int | None = None
    index_heads: int = 2
    index_dim: int | None = None

    positions: ClassVar[tuple[str, ...]] = (
        "rotary",
        *(name for name in POSITIONS if name != "rotary"),
    )
    unsupported: ClassVar[tuple[str, ...]] = (
        "num_kv_heads",
        "qk_norm",
        "windows",
    )
    has_scores: ClassVar[bool] = True
    keeps_heads: ClassVar[bool] = False
    weighs_by_head: ClassVar[bool] = True
    reads_padding: ClassVar[bool] = False  # padding would shift the groups

    def __post_init__(self) -> None:
        optional = ("entries_per_query", "index_dim")
        validate_sizes(
            compress=self.compress,
            window=self.window,
            index_heads=self.index_heads,
            **{n: v for n in optional if (v := getattr(self, n)) is not None},
        )
        validate_switches(overlap=self.overlap)
        if self.entries_per_query is None:
            for name in ("index_heads", "index_dim"):
                if (value := getattr(self, name)) != getattr(Compressed, name):
                    raise ValueError(
                        f"{name}={value} needs entries_per_query: it is about the "
                        "indexer, which chooses them"
                    )

    def make(self, settings: LayerSettings) -> "CompressedAttention":
        """Return a new layer, of which positions turn half of the features."""
        return CompressedAttention(
            self,
            d_model=settings.d_model,
            num_heads=settings.num_heads,
            head_dim=settings.head_dim,
            rotary_dim=(settings.head_dim + 2) // 4 * 2,
            dropout=settings.dropout,
            bias=settings.bias,
            fused=settings.fused,
            device=settings.device,
            dtype=settings.dtype,
        )


# --8<-- [start:compressor]
class Compressor(nn.Module):
    """The projections that make one vector of each group of tokens.

    Args:
        compressed: How many tokens make a group, and whether groups overlap.
        d_model: D, the width of the sequence.
        width: d, the width of an entry.
        on: The device and the type of the parameters.
    """

    row_vectors = ("position_bias",)

    def __init__(
        self, compressed: Compressed, d_model: int, width: int, **on: Any
    ) -> None:
        super().__init__()
        self.overlap = compressed.overlap
        self.features = (1 + self.overlap) * width
        self.kv_proj = nn.Linear(d_model, self.features, bias=False, **on)
        self.gate_proj = nn.Linear(d_model, self.features, bias=False, **on)
        bias = torch.empty(compressed.compress, self.features, **on)
        self.position_bias = nn.Parameter(bias)
        self.norm = HeadNorm(width, eps=1e-6, **on)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the bias of each place in a group to 0. The model draws the rest."""
        nn.init.zeros_(self.position_bias)

    def project(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T both"]:
        """Return what tokens contribute, and their gates behind it."""
        return torch.cat([self.kv_proj(x), self.gate_proj(x)], dim=-1)

    def forward(self, groups: Float[Tensor, "B n m both"]) -> Float[Tensor, "B n d"]:
        """Return the entries of groups of projected tokens."""
        content, gates = groups.chunk(2, dim=-1)
        gates = gates + self.position_bias
        if self.overlap:
            content = with_group_before(content, 0.0)
            gates = with_group_before(gates, float("-inf"))
        return self.norm(pool(content, gates))


# --8<-- [end:compressor]


class EntryIndexer(IndexTrained):
    """The indexer of a layer: a small attention that ranks entries, made for it alone.

    Args:
        compressed: Its heads, and how entries are made.
        d_model: D, the width of the sequence.
        width: d_I, the width of a query or an entry.
        on: The device and the type of the parameters.
    """

    def __init__(
        self, compressed: Compressed, d_model: int, width: int, **on: Any
    ) -> None:
        super().__init__()
        self.num_heads = compressed.index_heads
        self.q_proj = nn.Linear(d_model, self.num_heads * width, bias=False, **on)
        self.weight_proj = nn.Linear(d_model, self.num_heads, bias=False, **on)
        self.compressor = Compressor(compressed, d_model, width, **on)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        entries: Float[Tensor, "B E d_I"],
        turns: Float[Tensor, "2 *table T half"] | None,
    ) -> Float[Tensor, "B T E"]:
        """Return a score for each token and entry."""
        q = _turned(split_heads(self.q_proj(x), self.num_heads), turns)
        return index_scores(q, entries, self.weight_proj(x))


class CompressedCache(KVCache):
    """What a layer with compressed keys keeps of a text, in three caches.

    Args:
        entries: For the entries, and those of the indexer.
        near: For the tokens in the window.
        recent: For what tokens contribute to entries that are not made yet, and the
            rotary table of these tokens.
        compress: How many tokens make an entry.
    """

    def __init__(
        self, entries: DenseCache, near: WindowCache, recent: WindowCache, compress: int
    ) -> None:
        super().__init__([entries, near, recent])
        self.entries, self.near, self.recent = entries, near, recent
        self.compress = compress

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``, and the entries that need them.

        Raises:
            ValueError: If there are fewer, or ``length`` is less than ``earliest`` and
                not 0.
        """
        validate_rewind(self, length)
        self.entries.rewind(length // self.compress)
        self.near.rewind(length)
        self.recent.rewind(length)


class CompressedAttention(nn.Module):
    """Attend to a window of tokens, and to entries that stand for several tokens.

    All heads share one vector of each token or entry, which is key and value at once;
    what rotary positions turned is turned back in the output of a head. Queries, tokens
    and entries are normalized, and each head has a learned sink.

    Args:
        compressed: How tokens become entries, and what a query reads.
        d_model: D, the width of the sequence.
        num_heads: H, how many heads.
        head_dim: d, the width of a query, a token or an entry.
        rotary_dim: How many of the last features positions turn; even.
        dropout: The probability of dropping an attention weight while training.
        bias: Whether projections add a bias; those for entries never do.
        fused: Use PyTorch's fused kernels unless weights are asked for.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Raises:
        ValueError: If a size is not positive, ``rotary_dim`` is odd or exceeds
            ``head_dim``, or ``dropout`` is not in [0, 1].
    """

    def __init__(
        self,
        compressed: Compressed,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int,
        rotary_dim: int,
        dropout: float = 0.0,
        bias: bool = False,
        fused: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        validate_sizes(d_model=d_model, num_heads=num_heads, head_dim=head_dim)
        validate_between("rotary_dim", rotary_dim, 0, head_dim, "head_dim")
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim={rotary_dim} must be even")
        validate_between("dropout", dropout, 0, 1)
        self.compressed, self.d_model, self.num_heads = compressed, d_model, num_heads
        self.head_dim, self.rotary_dim = head_dim, rotary_dim
        self.dropout, self.fused = dropout, fused
        on: dict[str, Any] = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias, **on)
        self.kv_proj = nn.Linear(d_model, head_dim, bias, **on)
        self.kv_norm = HeadNorm(head_dim, eps=1e-6, **on)
        self.compressor = Compressor(compressed, d_model, head_dim, **on)
        self.indexer: EntryIndexer | None = None
        self.index_dim = 0
        if compressed.entries_per_query is not None:
            own = compressed.index_dim
            self.index_dim = head_dim if own is None else own
            self.indexer = EntryIndexer(compressed, d_model, self.index_dim, **on)
        self.sink = nn.Parameter(torch.empty(num_heads, **on))
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias, **on)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the sinks to 0. The model draws the projections."""
        nn.init.zeros_(self.sink)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = True,
        window: int | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: Cache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Return what every position gathers from its window and from entries.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend to a token; to an entry, if it may
                to all tokens of it. The indexer does not know the mask.
            causal: Must be true: entries are of the past.
            window: Must be ``None``: the settings have a window.
            score_bias: Add this to the scores; to that of an entry, the lowest of its
                tokens.
            rotary: Turn the last features by the first pairs of this ``rotary_table``
                of the positions. An entry has that of the first token of its group.
            cache: Read on after the text in this ``new_cache``, and add ``x`` to it.
            return_weights: Also return the weights of every head, before dropout. That
                of an entry stands at its last token.

        Raises:
            TypeError: If ``mask`` is not boolean.
            ValueError: If shapes do not fit, or an argument must not be given.
        """
        self._validate(x, causal, window, rotary)
        if cache is not None and not isinstance(cache, CompressedCache):
            raise ValueError("cache must come from this layer's new_cache")
        settings, length = self.compressed, x.shape[1]
        start = 0 if cache is None else cache.length
        turns = None if rotary is None else rotary[..., : self.rotary_dim // 2]
        # --8<-- [start:forward]
        q = split_heads(self.q_proj(x), self.num_heads)
        q = _turned(F.rms_norm(q, (self.head_dim,), eps=1e-6), turns)
        tokens = _turned(self.kv_norm(self.kv_proj(x))[:, None], turns)
        tokens, entries, index = self._read(x, tokens, turns, cache)
        where = {"compress": settings.compress, "first": start}
        readable = entries_past(length, entries.shape[2], **where, device=x.device)
        scores, most = None, settings.entries_per_query
        if self.indexer is not None and most is not None:
            scores = self.indexer(x.detach(), index[:, 0], turns)
            scores = scores.masked_fill(~readable, float("-inf"))
            readable = choose_keys(scores, most)[:, None]
        learning = scores is not None and self.training and torch.is_grad_enabled()
        in_the_open = return_weights or not self.fused or learning
        inputs = q, tokens, entries, readable, mask, score_bias, start + length
        heads, weights = self._attend(*inputs, in_the_open=in_the_open)
        # What turned the keys has turned the values, too: turn the mean of them back.
        back = None if turns is None else torch.stack([turns[0], -turns[1]])
        output = self.o_proj(merge_heads(_turned(heads, back)))
        # --8<-- [end:forward]
        if self.indexer is not None and learning and weights is not None:
            far = weights[..., tokens.shape[2] :].mean(dim=1, keepdim=True)
            far = far / far.sum(dim=-1, keepdim=True).clamp(min=1e-9)
            self.indexer.index_loss = index_loss(scores, far, readable[:, 0])
        if weights is None or not return_weights:
            return output
        return output, self._by_token(weights, tokens.shape[2], start + length)

    # --8<-- [start:read]
    def _read(
        self,
        x: Tensor,
        tokens: Tensor,
        turns: Tensor | None,
        cache: CompressedCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens in reach, entries, and entries of the indexer, (B, 1, _, d)."""
        size, end = self.compressed.compress, x.shape[1]
        projected, compressors = self.compressor.project(x), [self.compressor]
        if self.indexer is not None:  # it learns from its own loss alone
            compressors.append(self.indexer.compressor)
            of_indexer = self.indexer.compressor.project(x.detach())
            projected = torch.cat([projected, of_indexer], dim=-1)
        if turns is None:
            table = x.new_zeros(len(x), 1, end, self.rotary_dim)
        else:
            table = turns.movedim(0, -2).flatten(-2).expand(len(x), 1, -1, -1)
        done = again = 0  # entries that are in the cache; which group to pool again
        if cache is not None:
            done, end = cache.length // size, cache.length + end
            # With overlap, a new entry needs the group before it.
            again = int(self.compressed.overlap and 0 < done < end // size)
            tokens, _ = cache.near.append(tokens, tokens[..., :0])
            projected, table = cache.recent.append(projected[:, None], table)
            projected = projected[:, 0]
        start, new = end - projected.shape[1], end // size - done
        if is_open(x.shape[1]) and cache is None:
            # Two more, which nobody may read: sizes of 0 and 1 would not be left open.
            projected, table = (
                F.pad(tensor, (0, 0, 0, 2 * size)) for tensor in (projected, table)
            )
            new = new + 2
        # Not cut out, which would fix the rest that makes no entry.
        places = torch.arange((new + again) * size, device=x.device)
        places = (places + (done - again) * size - start).unflatten(
            0, (new + again, size)
        )
        groups, table = projected[:, places], table[:, :, places[again:, 0]]
        table = None if turns is None else table.unflatten(-1, (2, -1)).movedim(-2, 0)
        parts = groups.split([2 * c.features for c in compressors], dim=-1)
        pooled = [
            _turned(compressor(part)[:, None, again:], table)
            for compressor, part in zip(compressors, parts, strict=True)
        ]
        entries, index = pooled if len(pooled) == 2 else (pooled[0], pooled[0][..., :0])
        if cache is not None:
            entries, index = cache.entries.append(entries, index)
        return tokens, entries, index

    # --8<-- [end:read]

    def _attend(
        self,
        q: Tensor,
        tokens: Tensor,
        entries: Tensor,
        readable: Tensor,
        mask: Tensor | None,
        score_bias: Tensor | None,
        num_tokens: int,
        *,
        in_the_open: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend step by step, with weights, or by kernels: to all, or in windows."""
        window = self.compressed.window
        dropout_p = self.dropout if self.training else 0.0
        plain = mask is None and score_bias is None and not is_open(q.shape[2])
        if plain and not in_the_open:
            heads = attention_in_windows(
                *(q, tokens, entries, self.sink, readable),
                window=window,
                entries_per_query=self.compressed.entries_per_query,
                dropout_p=dropout_p,
            )
            return heads, None
        every = tokens[:, :, :1].expand(-1, -1, num_tokens, -1)
        validate_attention(q, every, every, mask, None, score_bias, dropout_p)
        seen = seen_in_windows(tokens.shape[2], readable, window=window)
        sizes = num_tokens, tokens.shape[2], entries.shape[2]
        if mask is not None:
            seen = seen & self._with_entries(mask, *sizes)
        if score_bias is not None:
            score_bias = self._with_entries(score_bias, *sizes)
        k = torch.cat([tokens, entries], dim=2)
        options: dict[str, Any] = {"mask": seen, "score_bias": score_bias}
        options |= {"sink": self.sink, "dropout_p": dropout_p}
        if in_the_open:
            return adjusted_attention_with_weights(q, k, k, **options)
        return fused_attention_with_sink(q, k, k, **options), None

    def _with_entries(
        self, table: Tensor, num_tokens: int, in_reach: int, num_entries: int
    ) -> Tensor:
        """Return a mask or a bias of all tokens for those in reach, and for entries.

        That of an entry is the lowest of its tokens.
        """
        size = self.compressed.compress
        table = table.expand(*table.shape[:-1], num_tokens)
        groups = F.pad(table, (0, num_entries * size - num_tokens))
        lowest = groups.unflatten(-1, (num_entries, size)).amin(dim=-1)
        if self.compressed.overlap:
            before = F.pad(lowest, (1, 0), value=float("inf"))[..., :-1]
            lowest = torch.minimum(lowest, before)
        return torch.cat([table[..., num_tokens - in_reach :], lowest], dim=-1)

    def _by_token(self, weights: Tensor, in_reach: int, num_tokens: int) -> Tensor:
        """Return weights of tokens, with that of an entry added to its last token's."""
        near, far = weights.split([in_reach, weights.shape[-1] - in_reach], dim=-1)
        far = F.pad(far[..., None], (self.compressed.compress - 1, 0)).flatten(-2)
        near = F.pad(near, (num_tokens - in_reach, 0))
        return near + F.pad(far, (0, num_tokens - far.shape[-1]))

    def new_cache(self, batch_size: int, max_length: int) -> CompressedCache:
        """Return an empty cache for the entries and the last tokens of this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for.
        """
        settings, like = self.compressed, numbers_of(self)

        def memory(room: int, d_k: int, d_v: int) -> DenseCache:
            shape = batch_size, 1, room
            return DenseCache(like.new_zeros(*shape, d_k), like.new_zeros(*shape, d_v))

        def newest(window: int, d_k: int, d_v: int) -> WindowCache:
            room = min(window_room(window), max_length)
            kept = memory(room, d_k, d_v)
            return WindowCache(kept, window=window, max_length=max_length)

        groups = 1 + settings.overlap
        projected = 2 * groups * (self.head_dim + self.index_dim)
        return CompressedCache(
            memory(max_length // settings.compress, self.head_dim, self.index_dim),
            newest(settings.window, self.head_dim, 0),
            newest(groups * settings.compress, projected, self.rotary_dim),
            settings.compress,
        )

    def _validate(
        self,
        x: Tensor,
        causal: bool,
        window: int | None,
        rotary: Tensor | None,
    ) -> None:
        validate_features("x", x, self.d_model)
        if not causal:
            raise ValueError(
                "causal=False is refused: entries are pooled from the past"
            )
        if window is not None:
            raise ValueError(
                f"window={window} is refused: the layer has a window of its own, "
                f"{self.compressed.window}"
            )
        if rotary is not None and 2 * rotary.shape[-1] < self.rotary_dim:
            raise ValueError(
                f"rotary must be a table for rotary_dim={self.rotary_dim} or more; "
                f"it is for {2 * rotary.shape[-1]}"
            )

    def extra_repr(self) -> str:
        """Show the settings that the projections do not show."""
        return (
            f"{self.compressed}, num_heads={self.num_heads}, head_dim={self.head_dim}, "
            f"rotary_dim={self.rotary_dim}, dropout={self.dropout}, fused={self.fused}"
        )


def _turned(x: Tensor, table: Tensor | None) -> Tensor:
    """Rotate the last features of vectors, as many as a table is for."""
    if table is None or table.shape[-1] == 0:
        return x
    half = min(table.shape[-1], x.shape[-1] // 2)
    still, turning = x.split([x.shape[-1] - 2 * half, 2 * half], dim=-1)
    turning = rotate(turning, table[..., :half], pairing="neighbors")
    return torch.cat([still, turning], dim=-1)
