"""A complete GPT in one file of plain Python, using only the standard library.

It is the GPT of ``tested_transformer.gpt`` with learned positions, RMS norm, ReLU and
no biases: the same weights give the same logits. It reads one token at a time, and
every number records how it was computed. It is slow, but hides nothing.
"""

# --8<-- [start:file]
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise, starmap
from operator import attrgetter, mul

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

# --8<-- [start:scalar]
_births = count()


class Scalar:
    """A number that remembers its parents, the numbers it was computed from.

    ``slopes`` holds the derivative of ``value`` with respect to each parent. After
    ``backward``, ``grad`` is the derivative of the result with respect to this number.
    ``born`` numbers the scalars in order of creation, so that parents come first.
    """

    __slots__ = ("born", "grad", "parents", "slopes", "value")

    def __init__(
        self,
        value: float,
        parents: tuple["Scalar", ...] = (),
        slopes: tuple[float, ...] = (),
    ) -> None:
        self.value, self.parents, self.slopes = value, parents, slopes
        self.grad, self.born = 0.0, next(_births)

    def __add__(self, other: "Scalar | float") -> "Scalar":
        if isinstance(other, Scalar):
            return Scalar(self.value + other.value, (self, other), (1.0, 1.0))
        return Scalar(self.value + other, (self,), (1.0,))

    __radd__ = __add__  # sum() begins with 0 + the first

    def __mul__(self, other: "Scalar | float") -> "Scalar":
        if isinstance(other, Scalar):
            value = self.value * other.value
            return Scalar(value, (self, other), (other.value, self.value))
        return Scalar(self.value * other, (self,), (other,))

    # --8<-- [end:scalar]

    # --8<-- [start:functions]
    def __pow__(self, exponent: float) -> "Scalar":
        slope = exponent * self.value ** (exponent - 1)
        return Scalar(self.value**exponent, (self,), (slope,))

    def exp(self) -> "Scalar":
        """Return e to the power of this number."""
        value = math.exp(self.value)
        return Scalar(value, (self,), (value,))

    def log(self) -> "Scalar":
        """Return the natural logarithm."""
        return Scalar(math.log(self.value), (self,), (self.value**-1,))

    def relu(self) -> "Scalar":
        """Return the number itself if it is positive, and zero otherwise."""
        positive = self.value > 0
        return Scalar(self.value if positive else 0.0, (self,), (float(positive),))

    # --8<-- [end:functions]

    # --8<-- [start:backward]
    def backward(self) -> None:
        """Add this number's gradient to the ``grad`` of all its ancestors."""
        visited: set[Scalar] = {self}
        unread: list[Scalar] = [self]
        while unread:
            for parent in unread.pop().parents:
                if parent.parents and parent not in visited:
                    visited.add(parent)
                    unread.append(parent)
        self.grad = 1.0
        # From the youngest to the oldest: when a number has its turn, every number
        # computed from it has had its own, so its gradient is complete.
        for number in sorted(visited, key=attrgetter("born"), reverse=True):
            grad = number.grad
            for parent, slope in zip(number.parents, number.slopes, strict=True):
                parent.grad += slope * grad

    # --8<-- [end:backward]


# --8<-- [start:dot]
Vector = list[Scalar]
_value = attrgetter("value")


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Return the dot product as one number whose parents are all the entries."""
    x, y = tuple(map(_value, a)), tuple(map(_value, b))
    value = sum(starmap(mul, zip(x, y, strict=True)))
    return Scalar(value, (*a, *b), y + x)


# --8<-- [end:dot]


# --8<-- [start:linear]
def linear(x: Vector, matrix: list[Vector]) -> Vector:
    """Project a vector: one dot product for each row, as in ``nn.Linear``."""
    return [dot(row, x) for row in matrix]


def _add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def softmax(scores: Vector) -> Vector:
    """Turn scores into weights that sum to 1."""
    # Subtract the largest score so that no exponential overflows; no weight changes.
    largest = max([score.value for score in scores])
    exps = [(score + -largest).exp() for score in scores]
    share = sum(exps) ** -1.0
    return [number * share for number in exps]


# --8<-- [end:linear]


# --8<-- [start:attend]
def attend(
    query: Vector, keys: list[Vector], values: list[Vector]
) -> tuple[Vector, Vector]:
    """Return the output and the weights of one head for one query.

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
    assert isinstance(total, Scalar)  # the sum of an empty list would be 0
    return total.log() + largest + logits[target] * -1.0


# --8<-- [end:norm]


# --8<-- [start:past]
@dataclass
class Past:
    """The key/value cache of one head."""

    keys: list[Vector] = field(default_factory=list)
    values: list[Vector] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)  # only for inspection


# --8<-- [end:past]


# --8<-- [start:init]
class MicroGPT:
    """A GPT made of lists of ``Scalar``, with weights named and laid out as in ``GPT``.

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
        return [w for matrix in self.weights.values() for row in matrix for w in row]

    # --8<-- [end:init]

    # --8<-- [start:heads]
    def new_past(self) -> list[list[Past]]:
        """Make an empty past for each head of each layer."""
        heads, layers = range(self.num_heads), range(self.num_layers)
        return [[Past() for _ in heads] for _ in layers]

    # --8<-- [end:heads]

    # --8<-- [start:read]
    def read(self, token: int, past: list[list[Past]]) -> Vector:
        """Append one token to the past, and predict the token after it.

        Returns:
            The logits, one score for each token of the vocabulary.

        Raises:
            ValueError: If the past already has ``max_seq_len`` tokens.
        """
        position = len(past[0][0].keys)
        if position == self.max_seq_len:
            raise ValueError(f"max_seq_len={position} tokens are read: no more room")
        embedding = self.weights["token_embedding"][token]
        x = _add(embedding, self.weights["position_embedding"][position])
        for layer, heads in enumerate(past):
            name = f"blocks.{layer}"
            x = _add(x, self._attention(rms_norm(x), f"{name}.attention", heads))
            x = _add(x, self._feed_forward(rms_norm(x), f"{name}.feed_forward"))
        return linear(rms_norm(x), self.weights["head"])

    def _attention(self, x: Vector, name: str, heads: list[Past]) -> Vector:
        """Let each head of the token attend to the past and to the token itself."""
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

    # --8<-- [end:read]

    # --8<-- [start:feed]
    def _feed_forward(self, x: Vector, name: str) -> Vector:
        """Project the vector of one token up, apply ReLU, and project it down."""
        hidden = [number.relu() for number in linear(x, self.weights[f"{name}.up"])]
        return linear(hidden, self.weights[f"{name}.down"])

    # --8<-- [end:feed]

    # --8<-- [start:loss]
    def loss(self, tokens: Sequence[int]) -> Scalar:
        """Return the mean cross-entropy of each token given those before it."""
        past = self.new_past()
        losses = [cross_entropy(self.read(a, past), b) for a, b in pairwise(tokens)]
        total = sum(losses)
        assert isinstance(total, Scalar)
        return total * (1 / len(losses))

    # --8<-- [end:loss]


# --8<-- [start:alphabet]
class Alphabet:
    """A tokenizer: letters are tokens 1, 2, ...; 0 begins and ends a name."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names or "" in names:
            raise ValueError(f"{names=} must have one or more names, none empty")
        self.letters = "".join(sorted(set("".join(names))))
        self.vocab_size = len(self.letters) + 1

    def encode(self, name: str) -> list[int]:
        """Return the tokens of a name between two zeros."""
        unknown = set(name) - set(self.letters)
        if unknown:
            raise ValueError(f"{name!r} has letters that are not in {self.letters!r}")
        return [0, *(self.letters.index(letter) + 1 for letter in name), 0]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the letters of tokens, without the zeros."""
        return "".join(self.letters[token - 1] for token in tokens if token != 0)


# --8<-- [end:alphabet]


# --8<-- [start:adam]
class Adam:
    """Move weights against their gradients, each with its own step size.

    Source: Kingma and Ba, 2015, "Adam: A Method for Stochastic Optimization",
    algorithm 1.
    """

    def __init__(self, parameters: Vector, beta1: float = 0.9, beta2: float = 0.95):
        self.parameters, self.beta1, self.beta2 = parameters, beta1, beta2
        self.steps = 0
        self.means, self.squares = [0.0] * len(parameters), [0.0] * len(parameters)

    def step(self, learning_rate: float) -> None:
        """Move every weight, and reset its gradient to zero."""
        self.steps += 1
        unbias1, unbias2 = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        for i, weight in enumerate(self.parameters):
            self.means[i] += (1 - self.beta1) * (weight.grad - self.means[i])
            self.squares[i] += (1 - self.beta2) * (weight.grad**2 - self.squares[i])
            root = math.sqrt(self.squares[i] / unbias2) + 1e-8
            weight.value -= learning_rate * self.means[i] / unbias1 / root
            weight.grad = 0.0


# --8<-- [end:adam]


# --8<-- [start:train]
def train(
    model: MicroGPT,
    sequences: Sequence[Sequence[int]],
    *,
    steps: int,
    batch_size: int = 4,
    learning_rate: float = 0.02,
    seed: int = 0,
) -> list[float]:
    """Train on random sequences with a falling learning rate; return the losses."""
    optimizer, draw = Adam(model.parameters()), random.Random(seed).choices
    losses: list[float] = []
    for step in range(steps):
        losses.append(0.0)
        for tokens in draw(sequences, k=batch_size):
            loss = model.loss(tokens) * (1 / batch_size)
            loss.backward()  # here, so that only one sequence is in memory at a time
            losses[-1] += loss.value
        optimizer.step(learning_rate * (1 - step / steps))
    return losses


def write(model: MicroGPT, draw: random.Random) -> list[int]:
    """Sample tokens one by one, from a 0 to the next 0 or until the model is full."""
    past, tokens = model.new_past(), [0]
    while len(tokens) <= model.max_seq_len and (len(tokens) == 1 or tokens[-1] != 0):
        chances = [weight.value for weight in softmax(model.read(tokens[-1], past))]
        tokens += draw.choices(range(len(chances)), chances)
    return tokens


# --8<-- [end:train]
# --8<-- [end:file]
