"""Forms of attention used in models since 2023.

Each module holds one idea, written to be read and tested against its fast form and an
established implementation. ``GPTConfig(attention=Latent(latent_dim=32))`` lets a model
attend so; ``MultiHeadAttention(core=Differential())`` makes one layer with another core
than softmax. ``ATTENTIONS`` has the names that files and the command line use.
"""

from tested_transformer.attentions.chosen_blocks import (
    ChosenBlocks,
    attention_in_blocks,
    choose_blocks,
    chosen_mask,
    flex_blocks,
)
from tested_transformer.attentions.compressed import (
    Compressed,
    CompressedAttention,
    CompressedCache,
    Compressor,
    EntryIndexer,
    attention_in_windows,
    entries_past,
    pool,
    seen_in_windows,
    with_group_before,
)
from tested_transformer.attentions.delta import (
    DeltaAttention,
    DeltaRule,
    chunked_delta_rule,
    parallel_delta_rule,
    recurrent_delta_rule,
)
from tested_transformer.attentions.differential import (
    Differential,
    DifferentialCore,
    first_share,
)
from tested_transformer.attentions.indexer import (
    ChosenKeys,
    Indexer,
    IndexerCore,
    attention_to_chosen,
    choose_keys,
    index_loss,
    index_scores,
    rounded_to_fp8,
)
from tested_transformer.attentions.latent import (
    Latent,
    LatentAttention,
)
from tested_transformer.attentions.linear import (
    LinearAttention,
    LinearRecurrence,
    averaged_linear_attention,
    chunked_linear_attention,
    parallel_linear_attention,
    positive_features,
    recurrent_linear_attention,
)
from tested_transformer.attentions.names import (
    ATTENTIONS,
    attention_named,
    name_of,
)
from tested_transformer.attentions.softmaxes import (
    GATES,
    AdjustedCore,
    AdjustedSoftmax,
    adjusted_attention_with_weights,
    cap_scores,
    fused_attention_with_sink,
    weights_with_sink,
)
from tested_transformer.attentions.states import StateCache, StateLayer

__all__ = [
    "ATTENTIONS",
    "GATES",
    "AdjustedCore",
    "AdjustedSoftmax",
    "ChosenBlocks",
    "ChosenKeys",
    "Compressed",
    "CompressedAttention",
    "CompressedCache",
    "Compressor",
    "DeltaAttention",
    "DeltaRule",
    "Differential",
    "DifferentialCore",
    "EntryIndexer",
    "Indexer",
    "IndexerCore",
    "Latent",
    "LatentAttention",
    "LinearAttention",
    "LinearRecurrence",
    "StateCache",
    "StateLayer",
    "adjusted_attention_with_weights",
    "attention_in_blocks",
    "attention_in_windows",
    "attention_named",
    "attention_to_chosen",
    "averaged_linear_attention",
    "cap_scores",
    "choose_blocks",
    "choose_keys",
    "chosen_mask",
    "chunked_delta_rule",
    "chunked_linear_attention",
    "entries_past",
    "first_share",
    "flex_blocks",
    "fused_attention_with_sink",
    "index_loss",
    "index_scores",
    "name_of",
    "parallel_delta_rule",
    "parallel_linear_attention",
    "pool",
    "positive_features",
    "recurrent_delta_rule",
    "recurrent_linear_attention",
    "rounded_to_fp8",
    "seen_in_windows",
    "weights_with_sink",
    "with_group_before",
]
