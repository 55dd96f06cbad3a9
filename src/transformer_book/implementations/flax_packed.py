"""Self-attention in Flax with one ``Dense``: all queries, all keys, all values."""

from transformer_book.implementations import packed
from transformer_book.implementations.flax_dense import by_vjp, caller
from transformer_book.implementations.question import Parameters, Question, Step

__all__ = ["convert", "prepare"]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Transpose PyTorch's packed projection, and rename it; the order is the same."""
    names = {"c_attn": "qkv_proj", "c_proj": "o_proj"}
    parts = {"weight": "kernel", "bias": "bias"}
    converted: Parameters = {}
    for name, leaf in packed.convert(weights, num_heads).items():
        module, part = name.split(".")
        converted[f"{names[module]}.{parts[part]}"] = leaf.mT if leaf.ndim > 1 else leaf
    return converted


def prepare(question: Question) -> Step:
    """Attend to the sequence itself, which is all this module can do.

    Raises:
        ValueError: If the question has a context.
    """
    return by_vjp(caller(question, heads_first=False), convert, question)
