"""The key/value cache: keys and values of earlier tokens, kept for later ones.

A model that generates reads one new token at a time. That token's query needs the keys
and values of all tokens before it; with a cache they are computed only once.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tested_transformer.checks import validate_sizes

__all__ = ["KVCache", "LayerCache", "length_of", "validate_room"]


# --8<-- [start:layer]
class LayerCache:
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
        self._validate_room(k, end)
        validate_room(self.keys, self.values, k, v)
        if self.length == 0:
            self._suit(k)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    # --8<-- [end:layer]

    def _suit(self, k: Tensor) -> None:
        """Take the type of the first keys, which a layer's weights need not tell."""
        # Under autocast, the types of what is computed differ from call to call.
        if k.dtype != self.keys.dtype and not torch.is_autocast_enabled(k.device.type):
            self.keys, self.values = self.keys.to(k.dtype), self.values.to(k.dtype)

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.length = 0
        # What was written with gradients would keep every earlier pass alive.
        for name, memory in [*vars(self).items()]:
            if isinstance(memory, Tensor) and memory.requires_grad:
                setattr(self, name, memory.detach())

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    def _validate_room(self, k: Tensor, end: int) -> None:
        if end > self.keys.shape[2]:
            raise ValueError(
                f"the cache holds {self.length} of at most {self.keys.shape[2]} "
                f"tokens: there is no room for {k.shape[2]} more"
            )
        if k.shape[0] != self.keys.shape[0]:
            raise ValueError(
                f"the cache was made for batch_size={self.keys.shape[0]}; "
                f"the keys have {k.shape[0]}"
            )


def validate_room(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ``ValueError`` if new keys or values do not fit a cache's memory."""
    made = keys.shape[1], keys.shape[3], values.shape[3]
    given = k.shape[1], k.shape[3], v.shape[3]
    if made != given:
        raise ValueError(
            "the cache was made for {} heads with keys of {} and values of {} "
            "features; the new ones have {}, {} and {}".format(*made, *given)
        )


# --8<-- [start:cache]
class KVCache:
    """The keys and values of all layers.

    Args:
        num_layers: How many layers.
        batch_size: B, how many sequences are read side by side.
        num_kv_heads: Heads of keys and values in a layer; fewer than ``num_heads`` if
            heads share them. Pass one number for each layer if they differ.
        max_length: S, how many tokens there is room for.
        head_dim: d_k, the width of a key.
        value_dim: d_v, the width of a value; ``head_dim`` by default. 0 if the values
            are part of the keys, as in ``attentions.latent``.
        dtype: The type of each number.
        device: Where to keep them.

    Raises:
        ValueError: If a size is not positive, or ``value_dim`` is negative.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        batch_size: int,
        num_kv_heads: int | Sequence[int],
        max_length: int,
        head_dim: int,
        value_dim: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        heads = _for_each_layer(num_kv_heads, num_layers)
        validate_sizes(
            num_layers=num_layers,
            batch_size=batch_size,
            num_kv_heads=min(heads, default=1),
            max_length=max_length,
            head_dim=head_dim,
        )
        value_dim = head_dim if value_dim is None else value_dim
        if value_dim < 0:
            raise ValueError(f"value_dim={value_dim} must not be negative")
        made = {"dtype": dtype, "device": device}
        self.layers = [
            LayerCache(
                torch.zeros(batch_size, each, max_length, head_dim, **made),
                torch.zeros(batch_size, each, max_length, value_dim, **made),
            )
            for each in heads
        ]
        self.batch_size = batch_size
        self.max_length = max_length
        # The newest token of each sequence, for models with GPTConfig(smear=True).
        self.last_tokens: Tensor | None = None

    # --8<-- [end:cache]

    @classmethod
    def of_layers(
        cls, layers: Sequence[LayerCache], *, batch_size: int, max_length: int
    ) -> "KVCache":
        """Return a cache made of layers of any kind.

        Args:
            layers: The empty cache of each layer.
            batch_size: How many sequences they were made for.
            max_length: How many tokens they were made for.
        """
        cache = cls.__new__(cls)
        cache.layers = [*layers]
        cache.batch_size, cache.max_length = batch_size, max_length
        cache.last_tokens = None
        return cache

    @property
    def length(self) -> int:
        """How many tokens every layer has stored."""
        return self.layers[-1].length

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return sum(layer.nbytes for layer in self.layers)

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.last_tokens = None
        for layer in self.layers:
            layer.reset()


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


def _for_each_layer(num_kv_heads: int | Sequence[int], num_layers: int) -> list[int]:
    if isinstance(num_kv_heads, int):
        return [num_kv_heads] * num_layers
    if len(num_kv_heads) != num_layers:
        raise ValueError(
            f"num_kv_heads has {len(num_kv_heads)} layers; num_layers={num_layers}"
        )
    return [*num_kv_heads]
