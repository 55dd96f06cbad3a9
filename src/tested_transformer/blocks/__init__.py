"""The layers of a transformer, and what they are made of.

Each block adds what it finds to its input, after a norm that it reads through
(pre-norm). A mixture of experts can stand in the feed-forward's place.
"""

from tested_transformer.blocks.decoder import DecoderBlock
from tested_transformer.blocks.experts import MixtureOfExperts
from tested_transformer.blocks.feed_forward import ACTIVATIONS, FeedForward
from tested_transformer.blocks.norms import NORMS, make_norm

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "DecoderBlock",
    "FeedForward",
    "MixtureOfExperts",
    "make_norm",
]
