"""Caches that keep less, share, or store less precisely than ``DenseCache``.

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
    QuantizedLayer,
    quantize,
    quantized_cache,
)
from tested_transformer.caches.rolling import (
    RollingLayer,
    rolling_cache,
    sink_attention,
    sink_mask,
    stream_logits,
)
from tested_transformer.caches.slots import (
    SlotCache,
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
    "QuantizedLayer",
    "RollingLayer",
    "SlotCache",
    "SlotLayer",
    "quantize",
    "quantized_cache",
    "rolling_cache",
    "share_in_use",
    "sink_attention",
    "sink_mask",
    "slot_cache",
    "stream_logits",
]
