"""The key/value cache: keys and values of earlier tokens, kept for later ones.

A model that generates reads one new token at a time. That token's query needs the keys
and values of all tokens before it; with a cache they are computed only once.

``Cache`` says what every cache can do, that of a layer and that of a whole model, and
``LayerCache`` what a layer with keys and values needs beside it. ``DenseCache`` is the
plain one, ``WindowCache`` that of a layer with a window. Others keep less, or share
memory (``caches``), or keep a state instead of keys and values
(``attentions.StateCache``).
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "Cache",
    "DenseCache",
    "KVCache",
    "LayerCache",
    "WindowCache",
    "dense_layers",
    "length_of",
    "validate_batch",
    "validate_capacity",
    "validate_rewind",
    "validate_widths",
    "window_room",
]


@runtime_checkable
class Cache(Protocol):
    """What is kept of the tokens that were read, for those that come next.

    A cache that refuses something raises a ``ValueError`` and stays as it was.
    """

    @property
    def length(self) -> int:
        """How many tokens the next one continues; 0 at first."""

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""

    @property
    def nbytes(self) -> int:
        """The memory of what is kept, in bytes, with what is set aside for more."""

    @property
    def earliest(self) -> int:
        """The smallest length, other than 0, that it can now go back to."""

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``, as if they were never read.

        Raises:
            ValueError: If there are fewer tokens, or ``length`` is less than
                ``earliest`` and not 0.
        """

    def reset(self) -> None:
        """Forget all tokens and the passes that they came from; keep the memory."""


@runtime_checkable
class LayerCache(Cache, Protocol):
    """The cache of a layer with keys and values."""

    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return all that these see.

        Raises:
            ValueError: If there is no room left, or the cache was made for another
                batch size, number of heads or width.
        """


# --8<-- [start:layer]
class DenseCache:
    """The keys and values of one layer, in memory that is allocated once.

    Args:
        keys: Memory for the keys; its initial content does not matter.
        values: Memory for the values, which may be wider or narrower than the keys.
    """

    def __init__(
        self,
        keys: Float[Tensor, "B H_kv S d_k"],
        values: Float[Tensor, "B H_kv S d_v"],
    ) -> None:
        self.keys = keys
        self.values = values
        self.length = 0

    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return those of all tokens so far.

        Raises:
            ValueError: If there is no room left, or the cache was made for another
                batch size, number of heads or width.
        """
        end = self.length + k.shape[2]
        validate_capacity(self, k.shape[2], self.keys.shape[2])
        validate_batch(self, k)
        validate_widths(self.keys, self.values, k, v)
        if self.length == 0:
            self._take_type(k)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    # --8<-- [end:layer]

    earliest = 0

    def _take_type(self, k: Tensor) -> None:
        """Take the type of the first keys, which a layer's weights need not tell."""
        # Under autocast, the types of what is computed differ from call to call.
        if k.dtype != self.keys.dtype and not torch.is_autocast_enabled(k.device.type):
            self.keys, self.values = self.keys.to(k.dtype), self.values.to(k.dtype)

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self.keys.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``.

        Raises:
            ValueError: If there are fewer.
        """
        validate_rewind(self, length)
        self.length = length

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.length = 0
        # What was written with gradients would keep every earlier pass alive.
        self.keys, self.values = self.keys.detach(), self.values.detach()


def window_room(window: int) -> int:
    """Return for how many tokens a ``WindowCache`` needs memory.

    Beside the ``window - 1`` tokens that the next one sees, there is twice some slack:
    once for tokens that may be taken back, and once for new ones, so that memory is
    moved only now and then.
    """
    return window - 1 + 2 * max(4, window // 16)


class WindowCache:
    """The last keys and values of a layer with a window.

    New tokens are written after those that are kept. When the memory is full, the last
    ones move to its front: the ``window - 1`` that the next token sees, and half of the
    rest of the memory, its slack. So at least as many tokens as the slack counts can be
    taken back at any time.

    Args:
        memory: An empty cache with room for ``window_room(window)`` tokens.
        window: How many tokens a position of the layer sees, including itself.
        max_length: How many tokens may be read.
    """

    def __init__(self, memory: DenseCache, *, window: int, max_length: int) -> None:
        self.memory = memory
        self.window, self.max_length = window, max_length
        self.length = 0

    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store T new tokens; return their keys and values, and those before in reach.

        S is T + ``window - 1``, or the number of all tokens if there are fewer.

        Raises:
            ValueError: If there is no room left, or the cache was made for another
                batch size, number of heads or width.
        """
        memory, num_new = self.memory, k.shape[2]
        room = memory.keys.shape[2]
        validate_capacity(self, num_new, self.max_length)
        if memory.length + num_new <= room:
            k, v = memory.append(k, v)
        else:
            validate_batch(self, k)
            validate_widths(memory.keys, memory.values, k, v)
            filled = memory.length
            k = torch.cat([memory.keys[:, :, :filled], k], dim=2)
            v = torch.cat([memory.values[:, :, :filled], v], dim=2)
            kept = (room + self.window - 1) // 2
            memory.rewind(0)
            memory.append(k[:, :, -kept:], v[:, :, -kept:])
        self.length += num_new
        reach = num_new + self.window - 1
        return k[:, :, -reach:], v[:, :, -reach:]

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self.memory.batch_size

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return self.memory.nbytes

    @property
    def earliest(self) -> int:
        """0 until tokens are forgotten; then, what the next one sees must be left."""
        forgotten = self.length - self.memory.length
        return forgotten and forgotten + self.window - 1

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``.

        Raises:
            ValueError: If there are fewer, or ``length`` is less than ``earliest`` and
                not 0.
        """
        validate_rewind(self, length)
        self.memory.rewind(max(self.memory.length - (self.length - length), 0))
        self.length = length

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.length = 0
        self.memory.reset()


class KVCache:
    """The cache of a model: those of its layers, and the tokens if it needs them.

    Args:
        layers: The empty cache of each layer, such as its ``new_cache`` returns.

    Raises:
        ValueError: If there are no layers.
    """

    def __init__(self, layers: Sequence[Cache]) -> None:
        if not layers:
            raise ValueError("layers is empty: a cache needs that of at least one")
        self.layers = (*layers,)
        # What was read, (B, length), for models with GPTConfig(smear=True).
        self.tokens: Int[Tensor, "B S"] | None = None

    @property
    def length(self) -> int:
        """How many tokens every layer has stored."""
        return self.layers[-1].length

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``, as if they were never read.

        Raises:
            ValueError: If one of the layers cannot go back to them. Then none has.
        """
        for layer in self.layers:
            validate_rewind(layer, length)
        if self.tokens is not None:
            self.tokens = self.tokens[:, :length]
        for layer in self.layers:
            layer.rewind(length)

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.tokens = None
        for layer in self.layers:
            layer.reset()

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self.layers[0].batch_size

    @property
    def nbytes(self) -> int:
        """The memory of all layers, in bytes."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def earliest(self) -> int:
        """The smallest length, other than 0, that all layers can now go back to."""
        return max(layer.earliest for layer in self.layers)

    @property
    def last_tokens(self) -> Int[Tensor, "B 1"] | None:
        """The newest token of each sequence, if there is one and it was remembered."""
        if self.tokens is None or self.tokens.shape[1] == 0:
            return None
        return self.tokens[:, -1:]

    def remember(self, tokens: Int[Tensor, "B T"]) -> None:
        """Keep the tokens of a pass, after all layers have stored theirs."""
        if self.tokens is not None:
            tokens = torch.cat([self.tokens, tokens], dim=1)
        self.tokens = tokens[:, -max(self.length, 1) :]  # all, unless the cache rolls


def length_of(cache: KVCache | None, num_layers: int) -> int:
    """Return how many tokens a cache holds; refuse one that does not fit the model.

    Args:
        cache: The cache; ``None`` holds none.
        num_layers: How many layers the model has.

    Raises:
        ValueError: If the cache has another number of layers, or its layers do not hold
            equally many tokens because a pass with it broke off.
    """
    if cache is None:
        return 0
    if len(cache.layers) != num_layers:
        raise ValueError(
            f"cache has {len(cache.layers)} layers, the model {num_layers}: "
            "make it with the model's new_cache"
        )
    length = cache.length
    # No set: while a model is compiled, lengths can be symbols, which have no hash.
    if [layer for layer in cache.layers if layer.length != length]:
        raise ValueError(
            "the layers of cache must hold equally many tokens; they hold "
            f"{[layer.length for layer in cache.layers]}. If a pass with it broke "
            "off, write cache.reset(), and read the text again"
        )
    return length


def dense_layers(cache: KVCache) -> list[DenseCache]:
    """Return the layers of a cache, to take over or copy their memory.

    Raises:
        ValueError: If a layer keeps anything but keys and values in one piece.
    """
    layers = [layer for layer in cache.layers if isinstance(layer, DenseCache)]
    if len(layers) < len(cache.layers):
        kinds = [type(layer).__name__ for layer in cache.layers]
        raise ValueError(
            f"every layer must keep keys and values in a DenseCache; they have {kinds}"
        )
    return layers


def validate_capacity(cache: Cache, num_new: int, max_length: int) -> None:
    """Raise a ``ValueError`` if a cache has no room for so many new tokens."""
    if cache.length + num_new > max_length:
        raise ValueError(
            f"the cache holds {cache.length} of at most {max_length} tokens: "
            f"there is no room for {num_new} more"
        )


def validate_batch(cache: Cache, k: Tensor) -> None:
    """Raise a ``ValueError`` if what is read has another batch size than the cache."""
    if k.shape[0] != cache.batch_size:
        raise ValueError(
            f"the cache was made for batch_size={cache.batch_size}; "
            f"the keys have {k.shape[0]}"
        )


def validate_widths(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ``ValueError`` if new keys or values do not fit a cache's memory."""
    expected = keys.shape[1], keys.shape[3], values.shape[3]
    new = k.shape[1], k.shape[3], v.shape[3]
    if expected != new:
        raise ValueError(
            "the cache was made for {} heads with keys of {} and values of {} "
            "features; the new ones have {}, {} and {}".format(*expected, *new)
        )


def validate_rewind(cache: Cache, length: int) -> None:
    """Raise a ``ValueError`` if a cache cannot go back to this number of tokens."""
    if length == 0 or cache.earliest <= length <= cache.length:
        return
    message = f"the cache holds {cache.length} tokens; it cannot go back to {length}"
    if 0 < length < cache.earliest:
        message += f": a {type(cache).__name__} can keep {cache.earliest} or more, or 0"
    raise ValueError(message)
