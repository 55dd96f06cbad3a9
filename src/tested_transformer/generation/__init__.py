"""Generation: continue prompts token by token.

It works with token ids and knows nothing about text.
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
