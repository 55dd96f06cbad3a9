"""Decoding: continue prompts token by token.

It works with token ids and knows nothing about text. Beside the plain loop there are
drafts that a model checks (speculative decoding), batches that requests join and leave,
and heads that predict several tokens at once.
"""

from tested_transformer.decoding.batching import (
    Batcher,
    Request,
    serve,
)
from tested_transformer.decoding.fast.decoder import Decoder
from tested_transformer.decoding.generating import generate, stream
from tested_transformer.decoding.readers import (
    CachedReader,
    WholeReader,
    fit,
    pad_left,
)
from tested_transformer.decoding.sampling import (
    Sampling,
    draw,
    penalize_repetition,
    sampling_probabilities,
)
from tested_transformer.decoding.several_tokens import (
    HeadDrafter,
    SeveralTokenGPT,
    several_token_loss,
)
from tested_transformer.decoding.speculative import (
    Chance,
    Draft,
    Drafter,
    ModelDrafter,
    NgramDrafter,
    Pass,
    Speculation,
    TextReader,
    every_outcome,
    expected_tokens,
    left_over,
    speculate,
    stream_passes,
    verify,
)
from tested_transformer.decoding.stopping import StopWatch, TextWatch

__all__ = [
    "Batcher",
    "CachedReader",
    "Chance",
    "Decoder",
    "Draft",
    "Drafter",
    "HeadDrafter",
    "ModelDrafter",
    "NgramDrafter",
    "Pass",
    "Request",
    "Sampling",
    "SeveralTokenGPT",
    "Speculation",
    "StopWatch",
    "TextReader",
    "TextWatch",
    "WholeReader",
    "draw",
    "every_outcome",
    "expected_tokens",
    "fit",
    "generate",
    "left_over",
    "pad_left",
    "penalize_repetition",
    "sampling_probabilities",
    "serve",
    "several_token_loss",
    "speculate",
    "stream",
    "stream_passes",
    "verify",
]
