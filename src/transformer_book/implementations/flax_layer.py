"""Flax's own layer, ``nnx.MultiHeadAttention``."""

from typing import Any

try:
    import jax
    import jax.numpy as jnp
    from flax import nnx
except ImportError as error:
    raise ImportError(
        'flax_layer needs JAX and Flax: pip install "tested-transformer[jax]"'
    ) from error

from transformer_book.implementations import einsum
from transformer_book.implementations.flax_dense import by_vjp
from transformer_book.implementations.question import Parameters, Question, Step

__all__ = ["convert", "prepare"]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Rename the parameters of ``einsum``: ``W_q`` is ``query.kernel``."""
    names = {"q": "query", "k": "key", "v": "value", "o": "out"}
    parts = {"W": "kernel", "b": "bias"}
    converted = einsum.convert(weights, num_heads)
    return {f"{names[n[2]]}.{parts[n[0]]}": leaf for n, leaf in converted.items()}


def prepare(question: Question) -> Step:
    """Split the layer into its graph and its parameters."""
    num_heads, d_model = question.layer.num_heads, question.x.shape[-1]

    def make() -> nnx.MultiHeadAttention:
        return nnx.MultiHeadAttention(
            num_heads, d_model, decode=False, keep_rngs=False, rngs=nnx.Rngs(0)
        )

    # eval_shape avoids drawing initial weights, which are not needed.
    graph, _ = nnx.split(nnx.eval_shape(make))
    mask = None if question.mask is None else jnp.asarray(question.mask.numpy())

    def call(parameters: Any, x: jax.Array, context: jax.Array) -> jax.Array:
        return nnx.merge(graph, nnx.State(parameters))(x, context, mask=mask)

    return by_vjp(call, convert, question)
