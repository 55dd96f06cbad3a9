"""A paged cache: memory is allocated in pages of a few tokens, which can be shared.

A ``DenseCache`` allocates memory for the longest possible text. Here all sequences take
pages from one pool as they grow. Each sequence keeps a *block table*: the pages that
hold its tokens, in order. Two tables may contain the same page; before a sequence
writes into a page that others hold, it takes a copy.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.cache import (
    KVCache,
    dense_layers,
    validate_batch,
    validate_capacity,
    validate_rewind,
    validate_widths,
)
from tested_transformer.checks import validate_sizes
from tested_transformer.gpt import GPT

__all__ = ["PagePool", "PagedBatch", "PagedCache", "PagedLayer", "share_in_use"]

Pool = TypeVar("Pool", bound="PagePool")


class PagePool:
    """Pages for the keys and values of many sequences, allocated once.

    A page holds ``page_size`` tokens of one sequence, in all layers.

    Args:
        num_pages: How many pages.
        page_size: How many tokens a page holds.
        num_layers: How many layers.
        num_kv_heads: Heads of keys and values in a layer.
        head_dim: d_k, the width of a key.
        value_dim: d_v, the width of a value; ``head_dim`` by default, 0 if the values
            are part of the keys.
        dtype: The type of each number.
        device: Where to keep them.

    Raises:
        ValueError: If a size is not positive, or ``value_dim`` is negative.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        page_size: int,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        validate_sizes(
            num_pages=num_pages,
            page_size=page_size,
            num_layers=num_layers,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
        )
        value_dim = head_dim if value_dim is None else value_dim
        if value_dim < 0:
            raise ValueError(f"value_dim={value_dim} must not be negative")
        shape = num_layers, num_pages, num_kv_heads, page_size
        self.keys = torch.zeros(*shape, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, value_dim, dtype=dtype, device=device)
        self.num_layers, self.page_size = num_layers, page_size
        self.users = [0] * num_pages  # how many sequences hold each page

    @property
    def num_free(self) -> int:
        """How many pages are free."""
        return self.users.count(0)

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    def take(self) -> int:
        """Take a free page, and return its number.

        Raises:
            ValueError: If all pages are in use.
        """
        if self.num_free == 0:
            raise ValueError(f"all {len(self.users)} pages are in use")
        page = self._next_free()
        self.users[page] = 1
        return page

    def _next_free(self) -> int:
        return self.users.index(0)

    def share(self, pages: Sequence[int]) -> None:
        """Let one more sequence hold pages."""
        for page in pages:
            self.users[page] += 1

    def copy(self, page: int) -> int:
        """Return the number of a copy of a page, and release the original."""
        new = self.take()
        self.keys[:, new] = self.keys[:, page]
        self.values[:, new] = self.values[:, page]
        self.users[page] -= 1
        return new

    def release(self, pages: Sequence[int]) -> None:
        """Give back pages, which are free if no other sequence holds them."""
        for page in pages:
            self.users[page] -= 1
        if not any(self.users):
            # What was written with gradients would keep every earlier pass alive.
            self.keys, self.values = self.keys.detach(), self.values.detach()

    @classmethod
    def for_model(
        cls: type[Pool], model: GPT, *, num_pages: int, page_size: int
    ) -> Pool:
        """Return a pool whose pages fit the cache of a model.

        Args:
            model: A model whose layers all have caches of one shape.
            num_pages: How many pages.
            page_size: How many tokens a page holds.

        Raises:
            ValueError: If layers have a state, or caches of different shapes, as after
                pruning.
        """
        layers = dense_layers(model.new_cache(1, max_length=1))
        shapes = {(layer.keys.shape, layer.values.shape) for layer in layers}
        if len(shapes) > 1:
            heads = [layer.keys.shape[1] for layer in layers]
            raise ValueError(
                f"layers of model must have equally many heads of keys, so that pages "
                f"have one size; they have {heads}"
            )
        ((keys, values),) = shapes
        return cls(
            num_pages=num_pages,
            page_size=page_size,
            num_layers=len(layers),
            num_kv_heads=keys[1],
            head_dim=keys[3],
            value_dim=values[3],
            dtype=layers[0].keys.dtype,
            device=layers[0].keys.device,
        )


class PagedCache(KVCache):
    """The keys and values of one sequence, in pages of a pool.

    Args:
        pool: Where the pages come from.
        max_length: How many tokens there may be; as many as the pool holds by default.
    """

    def __init__(self, pool: PagePool, *, max_length: int | None = None) -> None:
        most = len(pool.users) * pool.page_size
        self.max_length = most if max_length is None else max_length
        validate_sizes(max_length=self.max_length)
        self.pool = pool
        self.table: list[int] = []
        self._paged = [PagedLayer(self, index) for index in range(pool.num_layers)]
        super().__init__(self._paged)

    def fork(self) -> "PagedCache":
        """Return a cache with the same tokens that shares all pages with this one.

        Call it between two passes of a model, not during one.
        """
        fork = PagedCache(self.pool, max_length=self.max_length)
        fork.begin_with(self.table, self.length, self.tokens)
        return fork

    def begin_with(
        self, pages: Sequence[int], length: int, tokens: Int[Tensor, "1 S"] | None
    ) -> None:
        """Let an empty cache hold pages of its pool that others have filled.

        Args:
            pages: The pages, in order.
            length: How many tokens they hold.
            tokens: These tokens, if the model needs them (``GPTConfig(smear=True)``).
        """
        self.pool.share(pages)
        self.table, self.tokens = [*pages], tokens
        for layer in self._paged:
            layer.length = length

    def move_from(self, source: "PagedCache") -> None:
        """Copy the pages of a cache in another pool, which releases them.

        The pages of both pools must have one size.
        """
        self.make_room(0, source.length)
        pages, pool = source.table[: len(self.table)], source.pool
        self.pool.keys[:, self.table] = pool.keys[:, pages]
        self.pool.values[:, self.table] = pool.values[:, pages]
        self.tokens = source.tokens
        for layer in self._paged:
            layer.length = source.length
        source.reset()

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``, and release their pages.

        Raises:
            ValueError: If there are fewer.
        """
        super().rewind(length)
        self._release_from(-(-length // self.pool.page_size))

    def reset(self) -> None:
        """Forget all tokens, and release the pages."""
        super().reset()
        self._release_from(0)

    def _release_from(self, index: int) -> None:
        """Release the pages in the table from this place on."""
        self.table, rest = self.table[:index], self.table[index:]
        self.pool.release(rest)

    # --8<-- [start:room]
    def make_room(self, start: int, end: int) -> None:
        """Take or copy pages so that tokens ``start`` to ``end`` have their own.

        Raises:
            ValueError: If there are too few pages. Then nothing has changed.
        """
        size, users = self.pool.page_size, self.pool.users
        needed = range(start // size, -(-end // size))
        new = [index for index in needed if index >= len(self.table)]
        shared = [i for i in needed if i < len(self.table) and users[self.table[i]] > 1]
        self._validate_free(len(new) + len(shared))
        for index in shared:
            self.table[index] = self.pool.copy(self.table[index])
        self.table += [self.pool.take() for _ in new]

    # --8<-- [end:room]

    def _validate_free(self, num_pages: int) -> None:
        if num_pages > self.pool.num_free:
            raise ValueError(
                f"{num_pages} more pages are wanted; "
                f"{self.pool.num_free} of {len(self.pool.users)} are free"
            )


class PagedLayer:
    """One layer of a ``PagedCache``, which takes and releases the pages.

    Args:
        cache: The cache of all layers.
        index: Which of the layers this is.
    """

    batch_size, earliest = 1, 0

    def __init__(self, cache: PagedCache, index: int) -> None:
        self.cache, self.index = cache, index
        self.length = 0

    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return those of all tokens so far.

        Raises:
            ValueError: If there is no room left, there is more than one sequence, or
                the pool was made for other numbers of heads or widths.
        """
        self._validate_new(k, v)
        # --8<-- [start:layer]
        start, end = self.length, self.length + k.shape[2]
        self.cache.make_room(start, end)
        pool, size = self.cache.pool, self.cache.pool.page_size
        table = torch.tensor(self.cache.table, device=k.device)
        positions = torch.arange(start, end, device=k.device)
        pages, slots = table[positions // size], positions % size
        kept: list[Tensor] = []
        for memory, new in ((pool.keys[self.index], k), (pool.values[self.index], v)):
            # (T, H_kv, d)
            memory[pages, :, slots] = new[0].movedim(1, 0).to(memory.dtype)
            # (pages, H_kv, page_size, d): read in the order of the table
            kept.append(memory[table].movedim(1, 0).flatten(1, 2)[None, :, :end])
        self.length = end
        # --8<-- [end:layer]
        return kept[0], kept[1]

    def _validate_new(self, k: Tensor, v: Tensor) -> None:
        validate_capacity(self, k.shape[2], self.cache.max_length)
        validate_batch(self, k)
        pool = self.cache.pool
        validate_widths(pool.keys[self.index], pool.values[self.index], k, v)

    @property
    def nbytes(self) -> int:
        """This layer's memory in the pages of the table, shared ones included."""
        pool = self.cache.pool
        return len(self.cache.table) * (pool.nbytes // pool.keys.shape[:2].numel())

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``; the pages stay in the table.

        Raises:
            ValueError: If there are fewer.
        """
        validate_rewind(self, length)
        self.length = length

    def reset(self) -> None:
        """Forget all tokens; the pages stay in the table."""
        self.length = 0


class PagedBatch(KVCache):
    """Paged caches of one pool that are read side by side in one pass.

    Each may hold another number of tokens. Their keys are padded on the left, so that
    the new tokens of all end together, as in a padded batch of prompts. Call the model
    with ``positions`` and ``mask``.

    Args:
        caches: The caches; each takes the pages that it needs.
        num_new: How many tokens each reads in this pass.

    Raises:
        ValueError: If there are too few pages.
    """

    # --8<-- [start:batch]
    def __init__(self, caches: Sequence[PagedCache], num_new: int) -> None:
        self.caches, self.pool = [*caches], caches[0].pool
        size, device = self.pool.page_size, self.pool.keys.device
        lengths = [cache.length for cache in caches]
        for cache, length in zip(caches, lengths, strict=True):
            cache.make_room(length, length + num_new)
        columns = torch.arange(max(lengths) + num_new, device=device)
        padding = max(lengths) - torch.tensor(lengths, device=device)
        places = columns - padding[:, None]  # (B, S), of each key in its own text
        self.positions = places[:, -num_new:]
        self.mask = (places >= 0)[:, None, None]
        longest = max(len(cache.table) for cache in caches)
        tables = [[*c.table, *[0] * (longest - len(c.table))] for c in caches]
        places = places.clamp(min=0)
        self.pages = torch.tensor(tables, device=device).gather(1, places // size)
        self.slots = places % size
        super().__init__([_BatchLayer(self, i) for i in range(self.pool.num_layers)])

    # --8<-- [end:batch]

    @property
    def last_tokens(self) -> Int[Tensor, "B 1"] | None:
        """The newest token of each sequence, if they are remembered; 0 before any."""
        last = [cache.last_tokens for cache in self.caches]
        like = next((row for row in last if row is not None), None)
        if like is None:
            return None
        return torch.cat([torch.zeros_like(like) if r is None else r for r in last])

    def remember(self, tokens: Int[Tensor, "B T"]) -> None:
        """Keep the tokens of a pass, each row in the cache of its sequence."""
        for cache, row in zip(self.caches, tokens.split(1), strict=True):
            cache.remember(row)


class _BatchLayer:
    """One layer of a ``PagedBatch``."""

    earliest = 0

    def __init__(self, batch: PagedBatch, index: int) -> None:
        self.batch = batch
        self.memory = batch.pool.keys[index], batch.pool.values[index]
        self._layers = [cache._paged[index] for cache in batch.caches]

    # --8<-- [start:batch-layer]
    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return those of all, padded."""
        pages, slots, num_new = self.batch.pages, self.batch.slots, k.shape[2]
        kept = list[Tensor]()
        for memory, new in zip(self.memory, (k, v), strict=True):
            written = new.transpose(1, 2).to(memory.dtype)  # (B, T, H_kv, d)
            memory[pages[:, -num_new:], :, slots[:, -num_new:]] = written
            kept.append(memory[pages, :, slots].transpose(1, 2))
        for layer in self._layers:
            layer.length += num_new
        return kept[0], kept[1]

    # --8<-- [end:batch-layer]

    @property
    def length(self) -> int:
        """How many tokens the longest sequence holds."""
        return max(layer.length for layer in self._layers)

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return len(self._layers)

    @property
    def nbytes(self) -> int:
        """This layer's memory in all pages of the sequences."""
        return sum(layer.nbytes for layer in self._layers)

    def rewind(self, length: int) -> None:
        """Forget the tokens of each sequence after its first ``length``."""
        for layer in self._layers:
            layer.rewind(min(length, layer.length))

    def reset(self) -> None:
        """Forget all tokens; the pages stay in the tables."""
        self.rewind(0)


def share_in_use(caches: Sequence[PagedCache]) -> float:
    """Return the share of the room in the caches' pages that holds tokens.

    The caches must belong to one pool. A page that several of them hold counts once. If
    they hold no page, the share is 1.
    """
    filled = dict[int, int]()
    for cache in caches:
        size = cache.pool.page_size
        for index, page in enumerate(cache.table):
            tokens = max(min(cache.length - index * size, size), 0)
            filled[page] = max(tokens, filled.get(page, 0))
    room = len(filled) * caches[0].pool.page_size if filled else 0
    return sum(filled.values()) / room if room else 1.0
