"""Self-attention in Flax, as JAX courses write it: one ``Dense``, split by heads."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float

from transformer_book.implementations.question import Parameters, Question, Step

try:
    import jax
    import jax.numpy as jnp
    from flax import linen
    from flax.traverse_util import unflatten_dict
except ImportError as error:
    raise ImportError(
        'flax_dense needs JAX and Flax: pip install "tested-transformer[jax]"'
    ) from error

__all__ = ["DenseAttention", "by_vjp", "caller", "convert", "prepare"]


# --8<-- [start:module]
class DenseAttention(linen.Module):
    """Self-attention with one projection for queries, keys and values.

    Attributes:
        num_heads: How many heads there are.
        heads_first: Whether the projection holds query, key and value of head 0, then
            those of head 1, and so on; otherwise all queries, all keys, all values.
        causal: Whether to forbid attending to later positions.
        dropout: The probability of dropping a weight, unless ``deterministic``.
    """

    num_heads: int
    heads_first: bool = True
    causal: bool = False
    dropout: float = 0.0

    @linen.compact
    def __call__(
        self, x: Float[jax.Array, "B T D"], *, deterministic: bool = True
    ) -> Float[jax.Array, "B T D"]:
        """Attend. With dropout, pass ``apply`` a random key named ``dropout``."""
        batch, length, width = x.shape
        qkv = linen.Dense(3 * width, name="qkv_proj")(x)
        shape = (batch, length, self.num_heads, -1)
        if self.heads_first:
            parts = jnp.split(qkv.reshape(shape), 3, axis=-1)
        else:
            parts = [part.reshape(shape) for part in jnp.split(qkv, 3, axis=-1)]
        q, k, v = (part.transpose(0, 2, 1, 3) for part in parts)
        scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5
        if self.causal:
            past = jnp.tril(jnp.ones((length, length), bool))
            scores = jnp.where(past, scores, -jnp.inf)
        weights = linen.softmax(scores, axis=-1)
        weights = linen.Dropout(self.dropout)(weights, deterministic=deterministic)
        merged = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return linen.Dense(width, name="o_proj")(merged)


# --8<-- [end:module]


# --8<-- [start:convert]
def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Lay q, k and v of head 0 side by side, then those of head 1; transpose."""
    converted: Parameters = {}
    for theirs, part in (("kernel", "weight"), ("bias", "bias")):
        heads = [
            weights[f"{name}_proj.{part}"].unflatten(0, (num_heads, -1))
            for name in "qkv"
        ]
        # (H, 3, d_k, ...): split by heads, then by q, k, v within each.
        rows = torch.stack(heads, dim=1).flatten(0, 2)
        converted[f"qkv_proj.{theirs}"] = rows.T if part == "weight" else rows
    converted["o_proj.kernel"] = weights["o_proj.weight"].T
    converted["o_proj.bias"] = weights["o_proj.bias"]
    return converted


# --8<-- [end:convert]


def prepare(question: Question) -> Step:
    """Attend to the sequence itself, which is all this module can do.

    Raises:
        ValueError: If the question has a context.
    """
    return by_vjp(caller(question, heads_first=True), convert, question)


def caller(
    question: Question, *, heads_first: bool
) -> Callable[[Any, jax.Array, jax.Array], Any]:
    """Return a function that applies the module to parameters and a sequence.

    Raises:
        ValueError: If the question has a context.
    """
    if question.context is not None:
        raise ValueError("DenseAttention does only self-attention")
    module = DenseAttention(
        question.layer.num_heads, heads_first=heads_first, causal=question.causal
    )

    def call(parameters: Any, x: jax.Array, context: jax.Array) -> Any:
        return module.apply({"params": parameters}, x)

    return call


def by_vjp(
    call: Callable[[Any, jax.Array, jax.Array], jax.Array],
    convert: Callable[[Parameters, int], Parameters],
    question: Question,
) -> Step:
    """Return the step of an implementation in JAX, compiled by ``jax.jit``.

    Args:
        call: A function from parameters, nested by the dots in their names, ``x`` and
            ``context`` to the output. Without a context, it gets ``x`` again.
        convert: A function that converts the weights to the parameters of ``call``.
        question: The question to answer.
    """
    parameters = convert(question.weights, question.layer.num_heads)
    in_doubles = question.x.dtype == torch.float64

    def work(leaves: Any, direction: jax.Array) -> tuple[jax.Array, Any]:
        def output_of(leaves: Any) -> jax.Array:
            parameters = unflatten_dict(leaves["parameters"], sep=".")
            return call(parameters, leaves["x"], leaves.get("context", leaves["x"]))

        output, pull_back = jax.vjp(output_of, leaves)
        return output, pull_back(direction)[0]

    # Doubles are compared, and not timed, so most of their time is that of compiling.
    options = {"xla_backend_optimization_level": 0} if in_doubles else None
    compiled = jax.jit(work, compiler_options=options)
    # By default JAX converts everything to float32.
    with jax.enable_x64(in_doubles):
        arrays = jax.tree.map(_array, {**question.inputs, "parameters": parameters})
        direction = _array(question.direction)

    def step() -> tuple[jax.Array, dict[str, Any]]:
        with jax.enable_x64(in_doubles):
            output, gradients = jax.block_until_ready(compiled(arrays, direction))
        return output, gradients.pop("parameters") | gradients

    return step


def _array(tensor: torch.Tensor) -> jax.Array:
    # NumPy has no bfloat16, but a float holds every bfloat16 exactly.
    numbers = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return jnp.asarray(numbers.numpy(), str(tensor.dtype).removeprefix("torch."))
