"""The fast path of generation: a GPT packed for reading one token at a time."""

from tested_transformer.decoding.fast.decoder import Decoder

__all__ = ["Decoder"]
