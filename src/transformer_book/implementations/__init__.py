"""Common ways to write attention, side by side, all with the same weights.

Each file is one way, with the same two functions: ``convert`` puts the weights of this
library's ``MultiHeadAttention`` into its layout, and ``prepare`` returns a function
that answers a ``Question``. ``per_head`` uses only NumPy. ``flax_dense``,
``flax_packed``, ``flax_layer`` and ``flax_experts``, a mixture of experts, need JAX and
Flax: ``pip install "tested-transformer[jax]"``. Import these five modules directly.
"""

from transformer_book.implementations.question import (
    Implementation,
    Question,
    answer,
    gaps,
    reference,
)

__all__ = ["Implementation", "Question", "answer", "gaps", "reference"]
