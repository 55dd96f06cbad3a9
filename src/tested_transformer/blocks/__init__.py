"""The layers of a transformer, and what they are made of.

Each block adds what it finds to its input. A GPT's reads through a norm (pre-norm);
those of an encoder and its decoder can norm the sum (post-norm). A mixture of experts
can stand in the feed-forward's place.
"""

from tested_transformer.blocks.cross_decoder import CrossDecoderBlock
from tested_transformer.blocks.decoder import DecoderBlock
from tested_transformer.blocks.encoder import EncoderBlock
from tested_transformer.blocks.experts import MixtureOfExperts, count_parameters
from tested_transformer.blocks.feed_forward import ACTIVATIONS, FeedForward
from tested_transformer.blocks.norms import NORMS, make_norm
from tested_transformer.blocks.residual import AddNorm

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "AddNorm",
    "CrossDecoderBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "MixtureOfExperts",
    "count_parameters",
    "make_norm",
]
