"""Tokenizers of the two kinds that today's models are published with, but small."""

import json

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

__all__ = ["LLAMA2", "LLAMA3", "TEXT"]

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
