"""Multi-head attention in NumPy, head by head, with a backward pass by hand."""

import numpy as np
from jaxtyping import Bool, Float

from transformer_book.implementations.question import Parameters, Question, Step

__all__ = ["PerHeadAttention", "convert", "prepare"]

Array = np.ndarray


# --8<-- [start:forward]
class PerHeadAttention:
    """Attention over one sequence, in which each head has its own matrices.

    Args:
        weights: ``W_q``, ``W_k``, ``W_v`` of shape (H, D, d_k) and ``W_o`` of shape
            (H, d_k, D); ``b_q``, ``b_k``, ``b_v`` of shape (H, d_k) and ``b_o`` (D,).
    """

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.num_heads, _, self.head_dim = weights["W_q"].shape
        self.scale = self.head_dim**-0.5

    def forward(
        self,
        x: Float[Array, "T D"],
        context: Float[Array, "S D"],
        mask: Bool[Array, "T S"] | None = None,
    ) -> Float[Array, "T D"]:
        """Return the output, and keep what the backward pass needs."""
        w = self.weights
        self.x, self.context = x, context
        self.kept: list[tuple[Array, ...]] = []
        output = np.zeros_like(x) + w["b_o"]
        for h in range(self.num_heads):
            q = x @ w["W_q"][h] + w["b_q"][h]
            k = context @ w["W_k"][h] + w["b_k"][h]
            v = context @ w["W_v"][h] + w["b_v"][h]
            scores = q @ k.T * self.scale
            if mask is not None:
                scores = np.where(mask, scores, -np.inf)
            exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights = exps / exps.sum(axis=-1, keepdims=True)
            head = weights @ v
            output += head @ w["W_o"][h]
            self.kept.append((q, k, v, weights, head))
        return output

    # --8<-- [end:forward]

    # --8<-- [start:backward]
    def backward(self, d_output: Float[Array, "T D"]) -> dict[str, Array]:
        """Return the gradients of both sequences and of every parameter."""
        w, x, context = self.weights, self.x, self.context
        d = {name: np.zeros_like(weight) for name, weight in w.items()}
        d |= {"x": np.zeros_like(x), "context": np.zeros_like(context)}
        d["b_o"] = d_output.sum(axis=0)
        for h, (q, k, v, weights, head) in enumerate(self.kept):
            d["W_o"][h] = head.T @ d_output
            d_head = d_output @ w["W_o"][h].T
            d_v = weights.T @ d_head
            d_weights = d_head @ v.T
            # A row of weights sums to one, so a shared change of its scores cancels.
            shared = (weights * d_weights).sum(axis=-1, keepdims=True)
            d_scores = weights * (d_weights - shared)
            d_q = d_scores @ k * self.scale
            d_k = d_scores.T @ q * self.scale
            for name, grad, sequence in (
                ("q", d_q, "x"),
                ("k", d_k, "context"),
                ("v", d_v, "context"),
            ):
                source = x if sequence == "x" else context
                d[f"W_{name}"][h] = source.T @ grad
                d[f"b_{name}"][h] = grad.sum(axis=0)
                d[sequence] += grad @ w[f"W_{name}"][h].T
        return d

    # --8<-- [end:backward]


def convert(weights: Parameters, num_heads: int) -> Parameters:
    """Transpose the matrices, to multiply from the right, and split them into heads."""
    converted: Parameters = {}
    for name in "qkv":
        matrix, bias = weights[f"{name}_proj.weight"].T, weights[f"{name}_proj.bias"]
        converted[f"W_{name}"] = matrix.unflatten(1, (num_heads, -1)).transpose(0, 1)
        converted[f"b_{name}"] = bias.unflatten(0, (num_heads, -1))
    converted["W_o"] = weights["o_proj.weight"].T.unflatten(0, (num_heads, -1))
    converted["b_o"] = weights["o_proj.bias"]
    return converted


def prepare(question: Question) -> Step:
    """Read the sequences one after the other, and sum the parameters' gradients."""
    parameters = convert(question.weights, question.layer.num_heads)
    layer = PerHeadAttention({name: p.numpy() for name, p in parameters.items()})
    inputs = {name: sequence.numpy() for name, sequence in question.inputs.items()}
    mask = None if question.mask is None else question.mask.numpy()
    directions = question.direction.numpy()

    def step() -> tuple[Array, dict[str, Array]]:
        d = {name: np.zeros_like(weight) for name, weight in layer.weights.items()}
        d |= {name: np.zeros_like(sequence) for name, sequence in inputs.items()}
        output = np.empty_like(inputs["x"])
        for i, x in enumerate(inputs["x"]):
            output[i] = layer.forward(x, inputs.get("context", inputs["x"])[i], mask)
            grads = layer.backward(directions[i])
            if "context" not in inputs:
                grads["x"] += grads.pop("context")  # one sequence in both places
            for name, gradient in grads.items():
                if name in inputs:
                    d[name][i] = gradient
                else:
                    d[name] += gradient
        return output, d

    return step
