"""Block attention: each query reads a few blocks of keys, chosen by their mean key.

Choosing costs one score per block; reading costs one score per key of the chosen
blocks. The open form turns the choice into a mask. The fast form gathers, for each
block, the queries that chose it. With FlexAttention, PyTorch can skip whole tiles.
"""

from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from tested_transformer.attention import repeat_heads
from tested_transformer.checks import validate_attention, validate_sizes
from tested_transformer.inspection import is_open, is_readable
from tested_transformer.interfaces import LayerSettings
from tested_transformer.masks import causal_mask
from tested_transformer.multihead import Core, ScoreOptions, Softmax, attend

__all__ = [
    "ChosenBlocks",
    "attention_in_blocks",
    "choose_blocks",
    "chosen_mask",
    "flex_blocks",
]

# The size of FlexAttention's tiles, in queries and in keys.
_TILE = 128


# --8<-- [start:choose]
def choose_blocks(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    *,
    block_size: int,
    num_chosen: int,
) -> Int[Tensor, "B H T chosen"]:
    """Return the numbers of the blocks that each query reads, its own block first.

    The others are the earlier blocks whose mean key has the largest dot product with
    the query. If there are too few earlier blocks, the missing numbers are -1.

    Args:
        q: Queries. The last one is at the last key.
        k: Keys; with fewer heads than ``q`` if heads share them.
        block_size: How many keys make a block. The last block may have fewer.
        num_chosen: How many blocks a query reads, including its own.

    Raises:
        ValueError: If a size is not positive, or there are more queries than keys.

    Source: Lu et al., 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs",
    section 2.2.
    """
    _validate(q, k, block_size, num_chosen)
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    full = num_keys // block_size
    # An incomplete block can only be a query's own, which needs no score.
    blocks = k[:, :, : full * block_size].unflatten(2, (full, block_size))
    means = blocks.mean(dim=3)
    scores = q @ repeat_heads(means, q).mT  # (B, H, T, blocks)
    positions = torch.arange(num_keys - num_queries, num_keys, device=q.device)
    own = positions[:, None] // block_size
    past = torch.arange(scores.shape[-1], device=q.device) < own
    scores = scores.masked_fill(~past, float("-inf"))
    best = scores.topk(min(num_chosen - 1, scores.shape[-1]), dim=-1)
    others = best.indices.masked_fill(best.values == float("-inf"), -1)
    return torch.cat([own.expand(*others.shape[:-1], 1), others], dim=-1)


# --8<-- [end:choose]


def chosen_mask(
    chosen: Int[Tensor, "B H T chosen"], *, num_keys: int, block_size: int
) -> Bool[Tensor, "B H T S"]:
    """Return the mask that lets a query see the blocks it chose, but no later key."""
    _validate_chosen(chosen, num_keys, block_size)
    blocks = torch.arange(num_keys, device=chosen.device) // block_size
    reads = _table(chosen, -(-num_keys // block_size))
    past = causal_mask(chosen.shape[2], num_keys, device=chosen.device)
    return reads[..., blocks] & past


def attention_in_blocks(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    chosen: Int[Tensor, "B H T chosen"],
    *,
    block_size: int,
) -> Float[Tensor, "B H T d_v"]:
    """Return causal attention with ``chosen_mask``, reading only the chosen blocks.

    The queries that chose a block attend to it on its own. Each query's partial outputs
    are then averaged, weighted by their sums of exponentials, as FlashAttention does
    with its tiles.

    Args:
        q: Queries. The last one is at the last key.
        k: Keys; with fewer heads than ``q`` if heads share them.
        v: Values, one for each key.
        chosen: The result of ``choose_blocks``.
        block_size: How many keys make a block.

    Source: Lu et al., 2025, "MoBA", section 2.3, algorithm 1.
    """
    validate_attention(q, k, v, None, None, None, 0.0)
    _validate_chosen(chosen, k.shape[-2], block_size)
    if chosen.shape[:3] != q.shape[:3]:
        raise ValueError(
            f"chosen must be {(*q.shape[:3],)} with one more axis, the blocks; "
            f"it is {tuple(chosen.shape)}"
        )
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    rows, first = q.shape[:2], k.shape[-2] - q.shape[-2]
    q, k, v, chosen = (x.flatten(0, 1) for x in (q, k, v, chosen))
    slots, asking, block = _tiles(chosen, -(-k.shape[1] // block_size), block_size)
    # The questions of each tile, and the keys and values of its block. A tile that is
    # not full asks zeros.
    queries = _rows_of(F.pad(q, (0, 0, 0, 1)), asking)
    keys, values = (
        _rows_of(
            F.pad(x, (0, 0, 0, -x.shape[1] % block_size)).unflatten(
                1, (-1, block_size)
            ),
            block,
        )
        for x in (k, v)
    )
    scores = queries @ keys.mT * q.shape[-1] ** -0.5
    places = block[..., None] * block_size + torch.arange(block_size, device=q.device)
    future = places[..., None, :] > (asking + first)[..., None]
    scores = scores.masked_fill(future, float("-inf"))
    outputs = (scores.softmax(dim=-1) @ values).flatten(1, 2)
    totals = scores.logsumexp(dim=-1).flatten(1, 2)
    # Back to queries and what each of them chose.
    totals = totals.gather(1, slots.flatten(1)).view_as(slots)
    shares = totals.masked_fill(chosen < 0, float("-inf")).softmax(dim=-1)
    output = (shares[..., None] * _rows_of(outputs, slots)).sum(dim=2)
    return output.unflatten(0, rows)


# --8<-- [start:tiles]
def _tiles(
    chosen: Int[Tensor, "heads T chosen"], num_blocks: int, size: int
) -> tuple[
    Int[Tensor, "heads T chosen"],
    Int[Tensor, "heads tiles size"],
    Int[Tensor, "heads tiles"],
]:
    """Put questions to the same block together, in tiles of a fixed size.

    How often a block was chosen is never read back, so nothing waits for it: there are
    as many tiles as there can be.

    Returns:
        The slot of each choice, if tiles are laid end to end; the query in each slot,
        with T where there is none; the block that each tile reads.
    """
    num_queries, num_chosen = chosen.shape[1:]
    chosen = chosen.flatten(1)
    chosen = torch.where(chosen < 0, num_blocks, chosen)  # no block: behind the last
    order = chosen.argsort(dim=1, stable=True)
    group = chosen.gather(1, order)
    counts = torch.zeros_like(chosen[:, :1]).repeat(1, num_blocks + 1)
    counts = counts.scatter_add(1, chosen, torch.ones_like(chosen))
    tiles = (counts + size - 1) // size
    ends = tiles.cumsum(dim=1)
    place = torch.arange(chosen.shape[1], device=chosen.device)
    place = place - (counts.cumsum(dim=1) - counts).gather(1, group)
    sorted_slots = (ends - tiles).gather(1, group) * size + place
    slots = torch.zeros_like(order).scatter(1, order, sorted_slots)
    query = torch.where(group == num_blocks, num_queries, order // num_chosen)
    num_tiles = chosen.shape[1] // size + num_blocks + 1
    asking = torch.full_like(order[:, :1], num_queries).repeat(1, num_tiles * size)
    asking = asking.scatter(1, sorted_slots, query)
    numbers = torch.arange(num_tiles, device=chosen.device)
    block = torch.searchsorted(ends, numbers.repeat(len(ends), 1), right=True)
    block = block.clamp(max=num_blocks - 1)
    return (
        slots.unflatten(1, (num_queries, num_chosen)),
        asking.unflatten(1, (num_tiles, size)),
        block,
    )


def _rows_of(x: Tensor, index: Tensor) -> Tensor:
    """Return rows of each head: the one at each place of ``index``."""
    start = torch.arange(len(x), device=x.device) * x.shape[1]
    start = start.view(-1, *[1] * (index.ndim - 1))
    rows = x.flatten(0, 1).index_select(0, (index + start).flatten())
    return rows.unflatten(0, index.shape)


# --8<-- [end:tiles]


def flex_blocks(
    chosen: Int[Tensor, "B H T chosen"], *, num_keys: int, block_size: int
) -> BlockMask:
    """Return the choice as FlexAttention's mask: tiles of 128 queries and keys.

    A tile is skipped if none of its queries chose any of its keys.
    """
    _validate_chosen(chosen, num_keys, block_size)
    num_queries = chosen.shape[2]
    first = num_keys - num_queries
    reads = _table(chosen, -(-num_keys // block_size))
    # How many queries of each tile read each key, (B, H, rows, columns, 128).
    tall = F.pad(reads, (0, 0, 0, -num_queries % _TILE)).unflatten(2, (-1, _TILE))
    blocks = torch.arange(num_keys, device=chosen.device) // block_size
    readers = F.pad(tall.sum(dim=3)[..., blocks], (0, -num_keys % _TILE))
    readers = readers.unflatten(-1, (-1, _TILE))
    # A tile is past in part if its first key is, and wholly if its last key is.
    rows, columns = (
        _TILE * torch.arange(n, device=chosen.device) for n in readers.shape[2:4]
    )
    some = (readers > 0).any(dim=-1) & (columns <= (rows + first + _TILE - 1)[:, None])
    full = (readers == _TILE).all(dim=-1) & (
        columns + _TILE - 1 <= (rows + first)[:, None]
    )
    return BlockMask.from_kv_blocks(
        *_listed(some & ~full),
        *_listed(full),
        BLOCK_SIZE=_TILE,
        mask_mod=lambda b, h, t, s: reads[b, h, t, s // block_size] & (s <= t + first),
        seq_lengths=(num_queries, num_keys),
    )


def _listed(
    tiles: Bool[Tensor, "B H rows columns"],
) -> tuple[Int[Tensor, "B H rows"], Int[Tensor, "B H rows columns"]]:
    """Return how many tiles each row has, and their columns, followed by the others."""
    order = tiles.int().argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(dim=-1).int(), order.int()


@dataclass(frozen=True, kw_only=True)
class ChosenBlocks(Softmax):
    """Let each query read a few blocks of keys; causal attention only.

    A layer with it has the parameters of ``MultiHeadAttention``, and computes the same
    if every query reads all blocks.

    Fused, it gathers the queries of each block, unless more than the future is masked,
    weights are dropped, or ``torch.compile`` or ``torch.export`` leaves the length
    open: then the choice becomes a mask. A mask hides keys but does not change which
    blocks are chosen.

    Args:
        block_size: How many keys make a block.
        num_chosen: How many blocks a query reads, including its own.

    Raises:
        ValueError: If a size is not positive.

    Source: Lu et al., 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs",
    section 2.2.
    """

    block_size: int = 16
    num_chosen: int = 3

    unsupported: ClassVar[tuple[str, ...]] = ("windows",)
    reads_padding: ClassVar[bool] = False

    def __post_init__(self) -> None:
        validate_sizes(block_size=self.block_size, num_chosen=self.num_chosen)

    def make_core(self, settings: LayerSettings) -> Core:
        """Return what chooses blocks, and attends to them."""
        return self._attend

    def _attend(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Float[Tensor, "B H T d_k"], Float[Tensor, "B H T S"] | None]:
        if not options["causal"]:
            raise ValueError("causal=False is refused: blocks are chosen from the past")
        mask, window = options["mask"], options["window"]
        score_bias, dropout_p = options["score_bias"], options["dropout_p"]
        validate_attention(q, k, v, mask, window, score_bias, dropout_p)
        size = self.block_size
        counted = not is_open(k.shape[-2])
        choose = choose_blocks if counted else _choose_in_any_length
        chosen = choose(q, k, block_size=size, num_chosen=self.num_chosen)
        only_causal = mask is window is score_bias and dropout_p == 0.0
        if not in_the_open and only_causal and counted:
            return attention_in_blocks(q, k, v, chosen, block_size=size), None
        to_mask = chosen_mask if counted else _mask_in_any_length
        allowed = to_mask(chosen, num_keys=k.shape[-2], block_size=size)
        options["mask"] = allowed if mask is None else allowed & mask
        return attend(q, k, v, in_the_open=in_the_open, **options)


def _mask_in_any_length(
    chosen: Tensor, *, num_keys: int, block_size: int
) -> Bool[Tensor, "B H T S"]:
    """Return the ``chosen_mask`` without counting the blocks."""
    blocks = torch.arange(num_keys, device=chosen.device) // block_size
    past = causal_mask(chosen.shape[2], num_keys, device=chosen.device)
    return (chosen[..., None] == blocks).any(dim=-2) & past


def _choose_in_any_length(
    q: Tensor, k: Tensor, *, block_size: int, num_chosen: int
) -> Int[Tensor, "B H T chosen"]:
    """Choose blocks as ``choose_blocks`` does, without counting them.

    It scores the mean of the keys from each position on. Of these positions, only the
    first of each block can be chosen.
    """
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    padded = F.pad(k, (0, 0, 0, block_size - 1))
    means = padded.unfold(2, block_size, 1).mean(dim=-1)  # (B, H_kv, S, d_k)
    scores = q @ repeat_heads(means, q).mT  # (B, H, T, S)
    first = torch.arange(num_keys, device=q.device)
    own = torch.arange(num_keys - num_queries, num_keys, device=q.device)
    own = own[:, None] // block_size
    choosable = (first % block_size == 0) & (first // block_size < own)
    scores = scores.masked_fill(~choosable, float("-inf"))
    # There are always enough columns.
    scores = F.pad(scores, (0, num_chosen - 1), value=float("-inf"))
    best = scores.topk(num_chosen - 1, dim=-1)
    others = best.indices // block_size
    others = others.masked_fill(best.values == float("-inf"), -1)
    return torch.cat([own.expand(*others.shape[:-1], 1), others], dim=-1)


def _table(chosen: Tensor, num_blocks: int) -> Bool[Tensor, "B H T blocks"]:
    """Return ``True`` for each block that was chosen."""
    table = torch.zeros(
        *chosen.shape[:-1], num_blocks + 1, dtype=torch.bool, device=chosen.device
    )
    # The extra column after the last block collects the numbers -1.
    return table.scatter(-1, chosen % (num_blocks + 1), value=True)[..., :-1]


def _validate_chosen(chosen: Tensor, num_keys: int, block_size: int) -> None:
    validate_sizes(num_keys=num_keys, block_size=block_size)
    # Reading them on another device would mean waiting for it.
    if chosen.device.type == "cpu" and is_readable(chosen):
        highest = int(chosen.max()) if chosen.numel() else -1
        if highest * block_size >= num_keys:
            raise ValueError(
                f"chosen has block {highest}; {num_keys} keys with "
                f"block_size={block_size} have no such block"
            )


def _validate(q: Tensor, k: Tensor, block_size: int, num_chosen: int) -> None:
    validate_sizes(block_size=block_size, num_chosen=num_chosen)
    validate_attention(q, k, k, None, None, None, 0.0)
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    if num_queries > num_keys:
        raise ValueError(f"{num_queries} queries must not be more than {num_keys} keys")
