"""The model: one token at a time, after those it has read."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tested_transformer.book.microgpt.scalar import Scalar, Vector, dot

__all__ = [
    "MicroGPT",
    "Past",
    "attend",
    "cross_entropy",
    "linear",
    "rms_norm",
    "softmax",
]


# --8<-- [start:attend]
def linear(x: Vector, matrix: list[Vector]) -> Vector:
    """Project a vector: one dot product for each row, as ``nn.Linear`` keeps them."""
    return [dot(row, x) for row in matrix]


def _add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def softmax(scores: Vector) -> Vector:
    """Turn scores into weights that sum to one."""
    # The largest becomes 0, so that no exponential overflows; no weight changes.
    largest = max([score.value for score in scores])
    exps = [(score + -largest).exp() for score in scores]
    share = sum(exps) ** -1.0
    return [number * share for number in exps]


def attend(
    query: Vector, keys: list[Vector], values: list[Vector]
) -> tuple[Vector, Vector]:
    """One head, one token: average the values. Returns the output and the weights.

    Source: Vaswani et al., 2017, "Attention Is All You Need", equation 1.
    """
    scores = [dot(query, key) * len(query) ** -0.5 for key in keys]
    weights = softmax(scores)
    output = [dot(weights, feature) for feature in zip(*values, strict=True)]
    return output, weights


# --8<-- [end:attend]


# --8<-- [start:norm]
def rms_norm(x: Vector) -> Vector:
    """Divide a vector by the root of its mean square.

    Source: Zhang and Sennrich, 2019, "Root Mean Square Layer Normalization", section 4.
    """
    scale = (dot(x, x) * (1 / len(x)) + 1e-5) ** -0.5
    return [number * scale for number in x]


def cross_entropy(logits: Vector, target: int) -> Scalar:
    """Return minus the logarithm of the probability that logits give the target."""
    largest = max([logit.value for logit in logits])
    total = sum([(logit + -largest).exp() for logit in logits])
    assert isinstance(total, Scalar)  # and not the 0 that a sum of nothing is
    return total.log() + largest + logits[target] * -1.0


# --8<-- [end:norm]


# --8<-- [start:past]
@dataclass
class Past:
    """What one head keeps of the tokens that it has read: the key/value cache."""

    keys: list[Vector] = field(default_factory=list)
    values: list[Vector] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)  # only to look at


# --8<-- [end:past]


# --8<-- [start:init]
class MicroGPT:
    """A GPT of lists of ``Scalar``, its weights named and laid out as those of ``GPT``.

    Raises:
        ValueError: If ``d_model`` is not divisible by ``num_heads``.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_seq_len: int = 16,
        d_model: int = 16,
        num_heads: int = 4,
        num_layers: int = 1,
        seed: int = 0,
    ) -> None:
        if d_model % num_heads != 0:
            raise ValueError(f"{d_model=} must be divisible by {num_heads=}")
        self.max_seq_len, self.num_layers = max_seq_len, num_layers
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        shapes = {
            "token_embedding": (vocab_size, d_model),
            "position_embedding": (max_seq_len, d_model),
            "head": (vocab_size, d_model),
        }
        for layer in range(num_layers):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                shapes[f"blocks.{layer}.attention.{name}"] = (d_model, d_model)
            shapes[f"blocks.{layer}.feed_forward.up"] = (4 * d_model, d_model)
            shapes[f"blocks.{layer}.feed_forward.down"] = (d_model, 4 * d_model)
        draw = random.Random(seed).gauss
        self.weights = {
            name: [[Scalar(draw(0, 0.08)) for _ in range(width)] for _ in range(height)]
            for name, (height, width) in shapes.items()
        }

    def parameters(self) -> Vector:
        """Return every weight of every matrix, in one list."""
        matrices = self.weights.values()
        return [number for matrix in matrices for row in matrix for number in row]

    # --8<-- [end:init]

    # --8<-- [start:read]
    def new_past(self) -> list[list[Past]]:
        """Make an empty past for each head of each layer."""
        heads, layers = range(self.num_heads), range(self.num_layers)
        return [[Past() for _ in heads] for _ in layers]

    def read(self, token: int, past: list[list[Past]]) -> Vector:
        """Read one token after those in the past, which takes it in: guess the next.

        Returns:
            The logits, a score for each token that may come next.

        Raises:
            ValueError: If the past is as long as the model can read.
        """
        position = len(past[0][0].keys)
        if position == self.max_seq_len:
            raise ValueError(
                f"max_seq_len={position} tokens are read: no room for more"
            )
        embedding = self.weights["token_embedding"][token]
        x = _add(embedding, self.weights["position_embedding"][position])
        for layer, heads in enumerate(past):
            x = _add(
                x, self._attention(rms_norm(x), f"blocks.{layer}.attention", heads)
            )
            x = _add(x, self._feed_forward(rms_norm(x), f"blocks.{layer}.feed_forward"))
        return linear(rms_norm(x), self.weights["head"])

    def _attention(self, x: Vector, name: str, heads: list[Past]) -> Vector:
        """Let the token attend, with each head, to the past and to itself."""
        q, k, v = (linear(x, self.weights[f"{name}.{p}_proj"]) for p in "qkv")
        merged: Vector = []
        for index, head in enumerate(heads):
            own = slice(index * self.head_dim, (index + 1) * self.head_dim)
            head.keys.append(k[own])
            head.values.append(v[own])
            output, weights = attend(q[own], head.keys, head.values)
            head.weights.append([weight.value for weight in weights])
            merged += output
        return linear(merged, self.weights[f"{name}.o_proj"])

    def _feed_forward(self, x: Vector, name: str) -> Vector:
        """Look at the token alone: widen, cut off what is negative, narrow."""
        hidden = [number.relu() for number in linear(x, self.weights[f"{name}.up"])]
        return linear(hidden, self.weights[f"{name}.down"])

    # --8<-- [end:read]

    # --8<-- [start:loss]
    def loss(self, tokens: Sequence[int]) -> Scalar:
        """Return the mean cross-entropy of each token given those before it."""
        past = self.new_past()
        losses = [cross_entropy(self.read(a, past), b) for a, b in pairwise(tokens)]
        total = sum(losses)
        assert isinstance(total, Scalar)
        return total * (1 / len(losses))

    # --8<-- [end:loss]
