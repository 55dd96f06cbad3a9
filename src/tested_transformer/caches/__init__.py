"""Caches that keep less, share, or store less precisely than ``KVCache``.

Each module holds one idea: the newest keys and a few sinks, pages that sequences share,
numbers in eight or four bits, slots that requests take in turn.
"""

from tested_transformer.caches.paged import (
    PagedCache,
    PagedLayer,
    PagePool,
    share_in_use,
)
from tested_transformer.caches.quantized import (
    BITS,
    GROUPS,
    Quantized,
    QuantizedCache,
    QuantizedLayer,
    quantize,
)
from tested_transformer.caches.rolling import (
    RollingLayer,
    rolling_cache,
    sink_attention,
    sink_mask,
    stream_logits,
)
from tested_transformer.caches.slots import (
    SlotLayer,
    slot_cache,
)

__all__ = [
    "BITS",
    "GROUPS",
    "PagePool",
    "PagedCache",
    "PagedLayer",
    "Quantized",
    "QuantizedCache",
    "QuantizedLayer",
    "RollingLayer",
    "SlotLayer",
    "quantize",
    "rolling_cache",
    "share_in_use",
    "sink_attention",
    "sink_mask",
    "slot_cache",
    "stream_logits",
]
