"""Slots of a running batch, each filled to its own length.

Source: Yu et al., 2022, "Orca: A Distributed Serving System for Transformer-Based
Generative Models", section 3.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.cache import (
    DenseCache,
    KVCache,
    dense_layers,
    validate_capacity,
    validate_rewind,
    validate_widths,
)
from tested_transformer.checks import validate_sizes
from tested_transformer.gpt import GPT

__all__ = ["SlotCache", "SlotLayer", "slot_cache"]


class SlotLayer:
    """The keys and values of one layer in slots, each filled to its own length.

    ``length`` is that of the longest slot. A mask must hide the rest of shorter ones.

    Args:
        keys: Memory for the keys of every slot.
        values: Memory for the values.
    """

    rewindable, earliest = True, 0

    def __init__(
        self,
        keys: Float[Tensor, "B H_kv S d_k"],
        values: Float[Tensor, "B H_kv S d_v"],
    ) -> None:
        self.keys = keys
        self.values = values
        # The same lengths twice: to know them, a device would have to be waited for.
        self.lengths = [0] * len(keys)
        self.ends = torch.zeros(len(keys), dtype=torch.long, device=keys.device)
        self._numbers = torch.arange(len(keys), device=keys.device)

    # --8<-- [start:append]
    def append(
        self, k: Float[Tensor, "A H_kv T d_k"], v: Float[Tensor, "A H_kv T d_v"]
    ) -> tuple[Float[Tensor, "A H_kv S d_k"], Float[Tensor, "A H_kv S d_v"]]:
        """Store T new tokens in each of the first A slots; return what they hold.

        Raises:
            ValueError: If a slot has no room left, or the cache was made for fewer
                slots, another number of heads or another width.
        """
        self._validate_new(k, v)
        num_slots, num_new = k.shape[0], k.shape[2]
        slots = self._numbers[:num_slots, None]
        places = self.ends[:num_slots, None] + torch.arange(num_new, device=k.device)
        # Under autocast, new keys and values have another type than the memory.
        self.keys[slots, :, places] = k.transpose(1, 2).to(self.keys.dtype)
        self.values[slots, :, places] = v.transpose(1, 2).to(self.values.dtype)
        self.ends[:num_slots] += num_new
        self.lengths[:num_slots] = [end + num_new for end in self.lengths[:num_slots]]
        longest = self.length
        return self.keys[:num_slots, :, :longest], self.values[:num_slots, :, :longest]

    # --8<-- [end:append]

    def _validate_new(self, k: Tensor, v: Tensor) -> None:
        if len(k) > len(self.keys):
            raise ValueError(
                f"the cache was made for batch_size={self.batch_size}; "
                f"the keys have {len(k)}"
            )
        validate_capacity(self, k.shape[2], self.keys.shape[2])
        validate_widths(self.keys, self.values, k, v)

    @property
    def length(self) -> int:
        """How many tokens the longest slot holds."""
        return max(self.lengths)

    @property
    def batch_size(self) -> int:
        """How many slots there are."""
        return self.keys.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory set aside for keys and values, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    def rewind(self, length: int) -> None:
        """Forget the tokens of every slot after its first ``length``.

        Raises:
            ValueError: If no slot has as many.
        """
        validate_rewind(self, length)
        self.lengths = [min(end, length) for end in self.lengths]
        self.ends.clamp_(max=length)

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.rewind(0)
        # What was written with gradients would keep every earlier pass alive.
        self.keys, self.values = self.keys.detach(), self.values.detach()

    def take_over(self, slot: int, source: DenseCache) -> None:
        """Copy the contents of a cache of one sequence into a slot."""
        length = source.length
        self.keys[slot, :, :length] = source.keys[0, :, :length]
        self.values[slot, :, :length] = source.values[0, :, :length]
        self.set_length(slot, length)

    def set_length(self, slot: int, length: int) -> None:
        """Set how many tokens a slot holds."""
        if self.lengths[slot] != length:
            self.lengths[slot] = length
            self.ends[slot] = length


class SlotCache(KVCache):
    """The cache of a model that reads a running batch.

    Args:
        layers: The empty slots of each layer.
    """

    def __init__(self, layers: Sequence[SlotLayer]) -> None:
        super().__init__(layers)
        self._slots = [*layers]
        self._read: Int[Tensor, "B S"] | None = None  # instead of ``tokens``

    @property
    def lengths(self) -> list[int]:
        """How many tokens each slot holds."""
        return self._slots[-1].lengths

    def take_over(self, slot: int, source: KVCache) -> None:
        """Copy the contents of a model's cache of one sequence into a slot.

        Raises:
            ValueError: If it does not keep keys and values in one piece.
        """
        for layer, read in zip(self._slots, dense_layers(source), strict=True):
            layer.take_over(slot, read)
        if source.tokens is not None:
            read = self._memory_for(source.tokens)
            read[slot, : source.length] = source.tokens[0]

    def release(self, slot: int) -> None:
        """Empty a slot for the next request."""
        for layer in self._slots:
            layer.set_length(slot, 0)

    @property
    def last_tokens(self) -> Int[Tensor, "B 1"] | None:
        """The newest token of each slot, if they are remembered; 0 in an empty one."""
        if self._read is None or self.length == 0:
            return None
        ends = self._slots[-1].ends[:, None]
        return self._read.gather(1, (ends - 1).clamp(min=0)) * (ends > 0)

    def remember(self, tokens: Int[Tensor, "A T"]) -> None:
        """Keep the tokens of a pass in the first A slots, after all layers have."""
        num_slots, num_new = tokens.shape
        ends = self._slots[-1].ends[:num_slots, None]
        places = ends - torch.arange(num_new, 0, -1, device=ends.device)
        self._memory_for(tokens)[:num_slots].scatter_(1, places, tokens)

    def _memory_for(self, tokens: Tensor) -> Tensor:
        """Return the memory of all slots' tokens, which the first ones allocate."""
        if self._read is None:
            shape = self.batch_size, self._slots[-1].keys.shape[2]
            self._read = tokens.new_zeros(shape)
        return self._read


def slot_cache(model: GPT, num_slots: int) -> SlotCache:
    """Return a cache of empty slots for a model.

    Raises:
        ValueError: If the model has windows, which would be counted from the end of the
            longest slot, or attention that cannot mask the rest of a slot.
    """
    validate_sizes(num_slots=num_slots)
    config = model.config
    if not config.attention.reads_padding:
        raise ValueError(
            f"attention={config.attention!r} of model cannot mask the rest of a slot"
        )
    if any(config.window_of(layer) for layer in range(config.num_layers)):
        raise ValueError(
            f"windows={config.windows} of model must be None: a window would be "
            "counted from the end of the longest slot"
        )
    layers = dense_layers(model.new_cache(num_slots))
    return SlotCache([SlotLayer(layer.keys, layer.values) for layer in layers])
