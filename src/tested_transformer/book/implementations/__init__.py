"""The ways the field writes attention, side by side, all with the same weights.

Each file is one way, with the same two functions beside it: ``convert`` lays the
weights of this library's ``MultiHeadAttention`` out as that way wants them, ``prepare``
returns the work that answers a ``Question``. ``per_head`` computes in NumPy alone;
``flax_dense``, ``flax_packed`` and ``flax_layer`` need JAX and Flax, which come with
``pip install "tested-transformer[jax]"``, and so does ``flax_experts``, a mixture of
experts beside this library's. Import these five where you need them.
"""

from tested_transformer.book.implementations.question import (
    Implementation,
    Question,
    answer,
    gaps,
    reference,
)

__all__ = ["Implementation", "Question", "answer", "gaps", "reference"]
