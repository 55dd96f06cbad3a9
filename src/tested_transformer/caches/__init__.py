"""Caches that keep less, share, or store less precisely than ``DenseCache``.

Each module holds one idea: the newest keys and a few sinks, pages that sequences share,
pages that are found again by their text, numbers in eight or four bits.
"""

from tested_transformer.caches.paged import (
    PagedBatch,
    PagedCache,
    PagedLayer,
    PagePool,
    share_in_use,
)
from tested_transformer.caches.prefix import PrefixPool, page_names
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

__all__ = [
    "BITS",
    "GROUPS",
    "PagePool",
    "PagedBatch",
    "PagedCache",
    "PagedLayer",
    "PrefixPool",
    "Quantized",
    "QuantizedLayer",
    "RollingLayer",
    "page_names",
    "quantize",
    "quantized_cache",
    "rolling_cache",
    "share_in_use",
    "sink_attention",
    "sink_mask",
    "stream_logits",
]
