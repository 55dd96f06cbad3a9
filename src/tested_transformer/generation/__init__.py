"""Generation: from a prompt to what comes after it, token by token.

It knows token ids and nothing of text.
"""

from tested_transformer.generation.contexts import fit, pad_left
from tested_transformer.generation.fast.decoder import Decoder
from tested_transformer.generation.generating import generate, stream
from tested_transformer.generation.readers import CachedReader, WholeReader
from tested_transformer.generation.sampling import (
    check_sampling,
    draw,
    penalize_repetition,
    sampling_probabilities,
)
from tested_transformer.generation.stopping import StopWatch, TextWatch

__all__ = [
    "CachedReader",
    "Decoder",
    "StopWatch",
    "TextWatch",
    "WholeReader",
    "check_sampling",
    "draw",
    "fit",
    "generate",
    "pad_left",
    "penalize_repetition",
    "sampling_probabilities",
    "stream",
]
