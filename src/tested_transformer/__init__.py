"""Transformer attention in PyTorch, as The Tested Transformer teaches it.

One module holds one idea; the book has a chapter for each of them.
"""

from tested_transformer.attention import (
    attention_scores,
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
)
from tested_transformer.masks import (
    causal_mask,
    from_additive,
    padding_mask,
    sliding_window_mask,
    to_additive,
    token_mask,
)
from tested_transformer.multihead import MultiHeadAttention, merge_heads, split_heads

__version__ = "0.1.0"
__all__ = [
    "MultiHeadAttention",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "from_additive",
    "fused_attention",
    "merge_heads",
    "padding_mask",
    "scaled_dot_product_attention",
    "sliding_window_mask",
    "split_heads",
    "to_additive",
    "token_mask",
]
