"""Forms of attention used in models since 2023.

Each module holds one idea, written to be read and tested against its fast form and an
established implementation. ``GPTConfig(attention=...)`` chooses a form by its name in
``FORMS``; for other settings, replace ``block.attention``.
"""

from tested_transformer.attentions.chosen_blocks import (
    BlockAttention,
    attention_in_blocks,
    choose_blocks,
    chosen_mask,
    flex_blocks,
    flex_in_blocks,
)
from tested_transformer.attentions.delta import (
    DeltaAttention,
    chunked_delta_rule,
    parallel_delta_rule,
    recurrent_delta_rule,
)
from tested_transformer.attentions.differential import (
    DifferentialAttention,
    first_share,
)
from tested_transformer.attentions.forms import (
    FORMS,
    Form,
)
from tested_transformer.attentions.latent import (
    LatentAttention,
)
from tested_transformer.attentions.linear import (
    LinearAttention,
    StateCache,
    StateLayer,
    averaged_linear_attention,
    chunked_linear_attention,
    parallel_linear_attention,
    positive_features,
    recurrent_linear_attention,
)
from tested_transformer.attentions.softmaxes import (
    GATES,
    AdjustedAttention,
    AttentionLayer,
    adjusted_attention_with_weights,
    cap_scores,
    fused_attention_with_sink,
    weights_with_sink,
)

__all__ = [
    "FORMS",
    "GATES",
    "AdjustedAttention",
    "AttentionLayer",
    "BlockAttention",
    "DeltaAttention",
    "DifferentialAttention",
    "Form",
    "LatentAttention",
    "LinearAttention",
    "StateCache",
    "StateLayer",
    "adjusted_attention_with_weights",
    "attention_in_blocks",
    "averaged_linear_attention",
    "cap_scores",
    "choose_blocks",
    "chosen_mask",
    "chunked_delta_rule",
    "chunked_linear_attention",
    "first_share",
    "flex_blocks",
    "flex_in_blocks",
    "fused_attention_with_sink",
    "parallel_delta_rule",
    "parallel_linear_attention",
    "positive_features",
    "recurrent_delta_rule",
    "recurrent_linear_attention",
    "weights_with_sink",
]
