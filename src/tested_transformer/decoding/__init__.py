"""Decoding: continue prompts token by token.

It works with token ids and knows nothing about text. Beside the plain loop there are
drafts that a model checks (speculative decoding), heads that predict several tokens at
once, and a server that answers many requests side by side.
"""

from tested_transformer.decoding.chained import ChainDrafter, ChainedGPT, ChainedHead
from tested_transformer.decoding.detokenizer import Detokenizer
from tested_transformer.decoding.fast.decoder import Decoder
from tested_transformer.decoding.fast.packing import PackingError
from tested_transformer.decoding.generation import generate, stream
from tested_transformer.decoding.multi_token import (
    HeadDrafter,
    MultiTokenGPT,
    multi_token_loss,
)
from tested_transformer.decoding.readers import (
    CachedReader,
    Reader,
    WholeReader,
    fit,
    pad_left,
)
from tested_transformer.decoding.sampling import (
    RandomSource,
    Sampling,
    draw,
    penalize_repetition,
    sampling_probabilities,
)
from tested_transformer.decoding.serving import Request, Server, Step
from tested_transformer.decoding.speculative import (
    Draft,
    Drafter,
    ModelDrafter,
    NgramDrafter,
    Speculation,
    SpeculativeStep,
    TextReader,
    TreeDrafter,
    TreeReader,
    expected_tokens,
    left_over,
    speculate,
    stream_speculation,
    tree_mask,
    verify,
    verify_tree,
)
from tested_transformer.decoding.stopping import StopFilter
from tested_transformer.decoding.traffic import Served, StepTime, serve

__all__ = [
    "CachedReader",
    "ChainDrafter",
    "ChainedGPT",
    "ChainedHead",
    "Decoder",
    "Detokenizer",
    "Draft",
    "Drafter",
    "HeadDrafter",
    "ModelDrafter",
    "MultiTokenGPT",
    "NgramDrafter",
    "PackingError",
    "RandomSource",
    "Reader",
    "Request",
    "Sampling",
    "Served",
    "Server",
    "Speculation",
    "SpeculativeStep",
    "Step",
    "StepTime",
    "StopFilter",
    "TextReader",
    "TreeDrafter",
    "TreeReader",
    "WholeReader",
    "draw",
    "expected_tokens",
    "fit",
    "generate",
    "left_over",
    "multi_token_loss",
    "pad_left",
    "penalize_repetition",
    "sampling_probabilities",
    "serve",
    "speculate",
    "stream",
    "stream_speculation",
    "tree_mask",
    "verify",
    "verify_tree",
]
