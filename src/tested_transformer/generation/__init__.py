"""Generation: from a prompt to what comes after it, token by token.

It knows token ids and nothing of text.
"""

from tested_transformer.generation.fast.decoder import Decoder
from tested_transformer.generation.generating import generate, stream
from tested_transformer.generation.readers import (
    CachedReader,
    WholeReader,
    fit,
    pad_left,
)
from tested_transformer.generation.sampling import (
    Sampling,
    draw,
    penalize_repetition,
    sampling_probabilities,
)
from tested_transformer.generation.stopping import StopWatch, TextWatch

__all__ = [
    "CachedReader",
    "Decoder",
    "Sampling",
    "StopWatch",
    "TextWatch",
    "WholeReader",
    "draw",
    "fit",
    "generate",
    "pad_left",
    "penalize_repetition",
    "sampling_probabilities",
    "stream",
]
