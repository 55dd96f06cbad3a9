"""Tokenizers of the two kinds that today's models are published with, and models."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.tested_transformer.large_weights import with_large_weights
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

__all__ = ["FAMILIES", "LLAMA2", "LLAMA3", "TEXT", "put"]

TEXT = "The cat sat on the mat. Größer, süß 😀!\n  don't  stop at 123456 \n\n" * 3
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _llama3() -> str:
    """Return byte pairs with a BOS, as in Llama 3."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[begin]
    )
    trim = processors.ByteLevel(trim_offsets=False)
    tokenizer.post_processor = processors.Sequence([trim, template])
    return tokenizer.to_str()


def _llama2() -> str:
    """Return pairs of characters that fall back to bytes, as in Llama 2 and Gemma."""
    tokenizer = Tokenizer(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?=▁)"), "isolated")
    replace = decoders.Replace("▁", " ")
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence(
        [replace, decoders.ByteFallback(), decoders.Fuse(), strip]
    )
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<unk>", "<s>", "</s>", *raw],
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT.replace("😀", "")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = None
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are no special tokens
    return json.dumps(content)


LLAMA3, LLAMA2 = _llama3(), _llama2()
SIZES = {
    # More tokens than the tokenizer has, as if padded to a multiple of 64.
    "vocab_size": 384,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 131072,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES: dict[str, tuple[Any, str]] = {
    "llama": (transformers.LlamaConfig, LLAMA3),
    "gemma2": (transformers.Gemma2Config, LLAMA2),
}


def put(family: str, folder: Path, **changes: Any) -> Any:
    """Make a tiny model with its tokenizer, as it is published."""
    kind, tokenizer = FAMILIES[family]
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(kind(**SIZES | changes))
    with_large_weights(model, 0.5).eval().save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model
