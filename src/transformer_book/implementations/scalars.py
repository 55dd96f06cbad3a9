"""Multi-head attention in plain Python, on lists of numbers with gradients."""

from typing import Any

from transformer_book.implementations.question import Parameters, Question, Step
from transformer_book.microgpt import Scalar, attend, dot, linear

__all__ = ["attend_tokens", "convert", "prepare"]

Vector = list[Scalar]


# --8<-- [start:attend]
def attend_tokens(
    weights: dict[str, Any],
    num_heads: int,
    x: list[Vector],
    context: list[Vector],
    *,
    causal: bool = False,
) -> list[Vector]:
    """Let each token of ``x`` attend to those of ``context``, one head at a time.

    Args:
        weights: Matrices as lists of rows, one for each output, and biases as lists.
        num_heads: How many slices each query, key and value has.
        x: The tokens of the queries, each a list of numbers.
        context: The tokens of keys and values.
        causal: Whether a token reads only up to its own position.
    """

    def project(token: Vector, name: str) -> Vector:
        rows = linear(token, weights[f"{name}.weight"])
        return [a + b for a, b in zip(rows, weights[f"{name}.bias"], strict=True)]

    keys = [project(token, "k_proj") for token in context]
    values = [project(token, "v_proj") for token in context]
    d_k = len(keys[0]) // num_heads
    outputs: list[Vector] = []
    for position, token in enumerate(x):
        query, merged = project(token, "q_proj"), []
        # Aligned at the end: the last token of x reads everything.
        last = position + 1 + len(context) - len(x) if causal else len(context)
        for own in (slice(h * d_k, (h + 1) * d_k) for h in range(num_heads)):
            head_keys = [key[own] for key in keys[:last]]
            head_values = [value[own] for value in values[:last]]
            merged += attend(query[own], head_keys, head_values)[0]
        outputs.append(project(merged, "o_proj"))
    return outputs


# --8<-- [end:attend]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Change nothing: a list of rows has the layout of ``nn.Linear``."""
    return dict(weights)


def prepare(question: Question) -> Step:
    """Turn every number into a ``Scalar``; the step reads the gradients from them."""
    num_heads = question.layer.num_heads
    numbers = {name: tensor.tolist() for name, tensor in question.weights.items()}
    numbers |= {name: tensor.tolist() for name, tensor in question.inputs.items()}
    directions = question.direction.tolist()

    def step() -> tuple[Any, dict[str, Any]]:
        leaves = {name: _scalars(value) for name, value in numbers.items()}
        sequences = zip(leaves["x"], leaves.get("context", leaves["x"]), strict=True)
        outputs = [
            attend_tokens(leaves, num_heads, x, context, causal=question.causal)
            for x, context in sequences
        ]
        parts = [
            dot(token, _scalars(direction))
            for tokens, rows in zip(outputs, directions, strict=True)
            for token, direction in zip(tokens, rows, strict=True)
        ]
        sum(parts, Scalar(0.0)).backward()
        gradients = {name: _read(leaf, "grad") for name, leaf in leaves.items()}
        return _read(outputs, "value"), gradients

    return step


def _scalars(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_scalars(part) for part in numbers]
    return Scalar(numbers)


def _read(scalars: Any, what: str) -> Any:
    if isinstance(scalars, list):
        return [_read(part, what) for part in scalars]
    return getattr(scalars, what)
