"""Attention as models since 2023 have it, and caches that go with it, one a module.

Each is written to be read, and tested equal to its fast form and to the code that
others trust. A block of ``GPT`` attends with ``MultiHeadAttention``; to use another,
replace ``block.attention``. The core and the models import nothing from here.
"""

from tested_transformer.variants.delta import (
    DeltaAttention,
    chunked_delta_rule,
    parallel_delta_rule,
    recurrent_delta_rule,
)
from tested_transformer.variants.latent import LatentAttention
from tested_transformer.variants.linear import (
    LinearAttention,
    StateLayer,
    averaged_linear_attention,
    chunked_linear_attention,
    parallel_linear_attention,
    positive_features,
    recurrent_linear_attention,
)

__all__ = [
    "DeltaAttention",
    "LatentAttention",
    "LinearAttention",
    "StateLayer",
    "averaged_linear_attention",
    "chunked_delta_rule",
    "chunked_linear_attention",
    "parallel_delta_rule",
    "parallel_linear_attention",
    "positive_features",
    "recurrent_delta_rule",
    "recurrent_linear_attention",
]
