"""Slots of a running batch, each filled to its own length.

Source: Yu et al., 2022, "Orca: A Distributed Serving System for Transformer-Based
Generative Models", section 3.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.cache import KVCache, LayerCache
from tested_transformer.checks import validate_sizes
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of

__all__ = ["SlotLayer", "slot_cache"]


class SlotLayer(LayerCache):
    """The keys and values of one layer in slots, each filled to its own length.

    ``length`` is that of the longest slot. A mask must hide the rest of shorter ones.

    Args:
        keys: Memory for the keys of every slot.
        values: Memory for the values.
        lengths: How many tokens each slot holds; all layers share this tensor.
    """

    def __init__(
        self,
        keys: Float[Tensor, "B H_kv S d_k"],
        values: Float[Tensor, "B H_kv S d_v"],
        lengths: Int[Tensor, "B"],
    ) -> None:
        super().__init__(keys, values)
        self.lengths = lengths

    # --8<-- [start:append]
    def append(
        self, k: Float[Tensor, "A H_kv 1 d_k"], v: Float[Tensor, "A H_kv 1 d_v"]
    ) -> tuple[Float[Tensor, "A H_kv S d_k"], Float[Tensor, "A H_kv S d_v"]]:
        """Store one new token in each of the first A slots; return what they hold."""
        num_slots, end = len(k), self.length + 1
        slots = torch.arange(num_slots, device=k.device)
        ends = self.lengths[:num_slots]
        # Under autocast, new keys and values have another type than the memory.
        self.keys[slots, :, ends] = k[:, :, 0].to(self.keys.dtype)
        self.values[slots, :, ends] = v[:, :, 0].to(self.values.dtype)
        return self.keys[:num_slots, :, :end], self.values[:num_slots, :, :end]

    # --8<-- [end:append]

    def take_over(self, slot: int, read: LayerCache) -> None:
        """Copy the contents of a cache of one sequence into a slot."""
        self.keys[slot, :, : read.length] = read.keys[0, :, : read.length]
        self.values[slot, :, : read.length] = read.values[0, :, : read.length]


def slot_cache(model: GPT, num_slots: int) -> tuple[KVCache, Int[Tensor, "B"]]:
    """Return a cache of slots for a model, and the length of each slot.

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
    cache = model.new_cache(num_slots)
    lengths = torch.zeros(num_slots, dtype=torch.long, device=numbers_of(model).device)
    slots = [SlotLayer(layer.keys, layer.values, lengths) for layer in cache.layers]
    cache.layers = [*slots]
    return cache, lengths
