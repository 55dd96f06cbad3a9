"""Speculative decoding: a cheap drafter guesses tokens, and the model verifies them.

The output has exactly the model's own distribution, whatever the drafter. A better
drafter only makes generation faster.

Sources of the whole: Leviathan et al., 2023, "Fast Inference from Transformers via
Speculative Decoding"; Chen et al., 2023, "Accelerating Large Language Model Decoding
with Speculative Sampling".
"""

from tested_transformer.decoding.speculative.drafters import (
    Draft,
    Drafter,
    ModelDrafter,
    NgramDrafter,
)
from tested_transformer.decoding.speculative.speculation import (
    Speculation,
    SpeculativeStep,
    speculate,
    stream_speculation,
)
from tested_transformer.decoding.speculative.text_reader import TextReader
from tested_transformer.decoding.speculative.trees import (
    TreeDrafter,
    TreeReader,
    tree_mask,
)
from tested_transformer.decoding.speculative.verification import (
    expected_tokens,
    left_over,
    verify,
    verify_tree,
)

__all__ = [
    "Draft",
    "Drafter",
    "ModelDrafter",
    "NgramDrafter",
    "Speculation",
    "SpeculativeStep",
    "TextReader",
    "TreeDrafter",
    "TreeReader",
    "expected_tokens",
    "left_over",
    "speculate",
    "stream_speculation",
    "tree_mask",
    "verify",
    "verify_tree",
]
