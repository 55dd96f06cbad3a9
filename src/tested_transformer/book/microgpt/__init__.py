"""A whole GPT in plain Python, with no import beyond the standard library.

It is the GPT of ``tested_transformer.gpt`` with learned positions, RMS norm, ReLU and
no biases: the same weights give the same logits. It reads one token at a time, and
every number in it remembers how it was made. Nothing here is fast; nothing is hidden.
"""

from tested_transformer.book.microgpt.model import (
    MicroGPT,
    Past,
    attend,
    cross_entropy,
    linear,
    rms_norm,
    softmax,
)
from tested_transformer.book.microgpt.scalar import Scalar, dot
from tested_transformer.book.microgpt.training import Adam, Alphabet, train, write

__all__ = [
    "Adam",
    "Alphabet",
    "MicroGPT",
    "Past",
    "Scalar",
    "attend",
    "cross_entropy",
    "dot",
    "linear",
    "rms_norm",
    "softmax",
    "train",
    "write",
]
