"""Attention as models since 2023 have it, and caches that go with it, one a module.

Each is written to be read, and tested equal to its fast form and to the code that
others trust. ``GPTConfig(attention=...)`` chooses one by the name that it has in
``FORMS``; for other settings, replace ``block.attention``. The core imports nothing
from here, and ``gpt`` only where a form is asked for.
"""

from tested_transformer.variants.batching import (
    Batcher,
    Request,
    SlotLayer,
    serve,
    slot_cache,
)
from tested_transformer.variants.chosen_blocks import (
    BlockAttention,
    attention_in_blocks,
    choose_blocks,
    chosen_mask,
    flex_blocks,
    flex_in_blocks,
)
from tested_transformer.variants.delta import (
    DeltaAttention,
    chunked_delta_rule,
    parallel_delta_rule,
    recurrent_delta_rule,
)
from tested_transformer.variants.differential import DifferentialAttention, first_share
from tested_transformer.variants.forms import FORMS, Form
from tested_transformer.variants.latent import LatentAttention
from tested_transformer.variants.linear import (
    LinearAttention,
    StateCache,
    StateLayer,
    averaged_linear_attention,
    chunked_linear_attention,
    parallel_linear_attention,
    positive_features,
    recurrent_linear_attention,
)
from tested_transformer.variants.paged import PagedCache, PagedLayer, PagePool
from tested_transformer.variants.quantized import (
    BITS,
    GROUPS,
    Quantized,
    QuantizedCache,
    QuantizedLayer,
    quantize,
)
from tested_transformer.variants.rolling import (
    RollingLayer,
    rolling_cache,
    sink_attention,
    sink_mask,
    stream_logits,
)
from tested_transformer.variants.rotary_scaling import (
    SCALINGS,
    dynamic_factor,
    linear_rates,
    ntk_rates,
    plain_rates,
    scaled_table,
    stretched,
    stretched_by,
    yarn_attention_factor,
    yarn_rates,
)
from tested_transformer.variants.several_tokens import (
    HeadDrafter,
    SeveralTokenGPT,
    several_token_loss,
)
from tested_transformer.variants.softmaxes import (
    GATES,
    AdjustedAttention,
    AttentionLayer,
    adjusted_attention_with_weights,
    cap_scores,
    fused_attention_with_sink,
    weights_with_sink,
)
from tested_transformer.variants.speculative import (
    Chance,
    Draft,
    Drafter,
    ModelDrafter,
    NgramDrafter,
    Speculation,
    TextReader,
    every_outcome,
    expected_tokens,
    left_over,
    rewind,
    speculate,
    verify,
)

__all__ = [
    "BITS",
    "FORMS",
    "GATES",
    "GROUPS",
    "SCALINGS",
    "AdjustedAttention",
    "AttentionLayer",
    "Batcher",
    "BlockAttention",
    "Chance",
    "DeltaAttention",
    "DifferentialAttention",
    "Draft",
    "Drafter",
    "Form",
    "HeadDrafter",
    "LatentAttention",
    "LinearAttention",
    "ModelDrafter",
    "NgramDrafter",
    "PagePool",
    "PagedCache",
    "PagedLayer",
    "Quantized",
    "QuantizedCache",
    "QuantizedLayer",
    "Request",
    "RollingLayer",
    "SeveralTokenGPT",
    "SlotLayer",
    "Speculation",
    "StateCache",
    "StateLayer",
    "TextReader",
    "adjusted_attention_with_weights",
    "attention_in_blocks",
    "averaged_linear_attention",
    "cap_scores",
    "choose_blocks",
    "chosen_mask",
    "chunked_delta_rule",
    "chunked_linear_attention",
    "dynamic_factor",
    "every_outcome",
    "expected_tokens",
    "first_share",
    "flex_blocks",
    "flex_in_blocks",
    "fused_attention_with_sink",
    "left_over",
    "linear_rates",
    "ntk_rates",
    "parallel_delta_rule",
    "parallel_linear_attention",
    "plain_rates",
    "positive_features",
    "quantize",
    "recurrent_delta_rule",
    "recurrent_linear_attention",
    "rewind",
    "rolling_cache",
    "scaled_table",
    "serve",
    "several_token_loss",
    "sink_attention",
    "sink_mask",
    "slot_cache",
    "speculate",
    "stream_logits",
    "stretched",
    "stretched_by",
    "verify",
    "weights_with_sink",
    "yarn_attention_factor",
    "yarn_rates",
]
