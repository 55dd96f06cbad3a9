"""Transformer attention in PyTorch, as The Tested Transformer teaches it.

Each module holds one idea, and the book has a chapter for each. Import what most
programs need from here; its module is loaded when you first use one of its names.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers; at run time, see __getattr__ below
    from tested_transformer.attention import (
        attention_scores,
        attention_weights,
        attention_with_weights,
    )
    from tested_transformer.cache import (
        KVCache,
    )
    from tested_transformer.checking import (
        assert_attention,
        assert_causal,
        check_attention,
    )
    from tested_transformer.checkpoints import (
        from_torch,
        load_checkpoint,
        load_gpt2,
        load_pretrained,
        save_checkpoint,
        to_torch,
    )
    from tested_transformer.config import (
        GPTConfig,
    )
    from tested_transformer.data import (
        load_corpus,
        load_tokens,
    )
    from tested_transformer.decoding import (
        Sampling,
        generate,
        stream,
    )
    from tested_transformer.encoder_decoder import (
        EncoderDecoder,
        EncoderDecoderConfig,
    )
    from tested_transformer.experts import (
        MixtureOfExperts,
    )
    from tested_transformer.gpt import (
        GPT,
        DecoderBlock,
    )
    from tested_transformer.interpret import (
        record_heads,
    )
    from tested_transformer.kernels import fused_attention
    from tested_transformer.layers import (
        FeedForward,
    )
    from tested_transformer.masks import (
        causal_mask,
        from_additive,
        padding_mask,
        sliding_window_mask,
        to_additive,
        token_mask,
    )
    from tested_transformer.multihead import (
        MultiHeadAttention,
        merge_heads,
        split_heads,
    )
    from tested_transformer.positions import (
        alibi_bias,
        rotary_table,
        rotate,
        sinusoidal_positions,
    )
    from tested_transformer.training import (
        Recipe,
        honest_loss,
        train,
    )

__version__ = "0.2.0"

# Which module defines each name.
_HOMES = {
    "attention": [
        "attention_scores",
        "attention_weights",
        "attention_with_weights",
    ],
    "kernels": ["fused_attention"],
    "masks": [
        "causal_mask",
        "from_additive",
        "padding_mask",
        "sliding_window_mask",
        "to_additive",
        "token_mask",
    ],
    "positions": ["alibi_bias", "rotary_table", "rotate", "sinusoidal_positions"],
    "cache": ["KVCache"],
    "multihead": ["MultiHeadAttention", "merge_heads", "split_heads"],
    "layers": ["FeedForward"],
    "experts": ["MixtureOfExperts"],
    "config": ["GPTConfig"],
    "gpt": ["DecoderBlock", "GPT"],
    "encoder_decoder": ["EncoderDecoder", "EncoderDecoderConfig"],
    "data": ["load_corpus", "load_tokens"],
    "training": ["Recipe", "honest_loss", "train"],
    "checkpoints": [
        "from_torch",
        "load_checkpoint",
        "load_gpt2",
        "load_pretrained",
        "save_checkpoint",
        "to_torch",
    ],
    "decoding": ["Sampling", "generate", "stream"],
    "interpret": ["record_heads"],
    "checking": ["assert_attention", "assert_causal", "check_attention"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "GPT",
    "DecoderBlock",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "FeedForward",
    "GPTConfig",
    "KVCache",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "Recipe",
    "Sampling",
    "alibi_bias",
    "assert_attention",
    "assert_causal",
    "attention_scores",
    "attention_weights",
    "attention_with_weights",
    "causal_mask",
    "check_attention",
    "from_additive",
    "from_torch",
    "fused_attention",
    "generate",
    "honest_loss",
    "load_checkpoint",
    "load_corpus",
    "load_gpt2",
    "load_pretrained",
    "load_tokens",
    "merge_heads",
    "padding_mask",
    "record_heads",
    "rotary_table",
    "rotate",
    "save_checkpoint",
    "sinusoidal_positions",
    "sliding_window_mask",
    "split_heads",
    "stream",
    "to_additive",
    "to_torch",
    "token_mask",
    "train",
]


def __getattr__(name: str) -> object:
    """Import the module that defines a name, and return what has that name."""
    if name in _HOME_OF:
        module = import_module(f"{__name__}.{_HOME_OF[name]}")
        globals()[name] = getattr(module, name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List every name that can be imported from here, loaded or not."""
    return sorted({*globals(), *__all__})
