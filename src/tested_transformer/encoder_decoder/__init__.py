"""The original transformer: an encoder reads a sequence, a decoder writes another."""

from tested_transformer.encoder_decoder.config import EncoderDecoderConfig
from tested_transformer.encoder_decoder.model import AttentionMaps, EncoderDecoder
from tested_transformer.encoder_decoder.translating import translate

__all__ = ["AttentionMaps", "EncoderDecoder", "EncoderDecoderConfig", "translate"]
