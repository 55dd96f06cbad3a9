"""The parts of every block: norms, the feed-forward, and the residual sum."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.checks import validate_choice, validate_sizes
from tested_transformer.inspection import numbers_of

__all__ = [
    "ACTIVATIONS",
    "GATED",
    "NORMS",
    "NORM_PLACES",
    "AddNorm",
    "FeedForward",
    "HeadNorm",
    "evaluating",
    "make_norm",
    "rows_of",
]

NORMS = ("layer", "rms")
NORM_PLACES = ("before", "after", "both")


# --8<-- [start:norms]
def make_norm(
    norm: str, d_model: int, *, bias: bool = True, eps: float = 1e-5
) -> nn.LayerNorm | nn.RMSNorm:
    """Return a layer norm, or an RMS norm, which has no centering and no bias.

    Raises:
        ValueError: If ``norm`` is not one of ``NORMS``.

    Sources: Ba et al., 2016, "Layer Normalization"; Zhang and Sennrich, 2019, "Root
    Mean Square Layer Normalization".
    """
    validate_choice("norm", norm, NORMS)
    if norm == "rms":
        return nn.RMSNorm(d_model, eps=eps)
    return nn.LayerNorm(d_model, eps=eps, bias=bias)


# --8<-- [end:norms]


# --8<-- [start:add-norm]
class AddNorm(nn.Module):
    """Add the output of a part to its input, with a norm before or after.

    Args:
        d_model: D, the width of the sequence.
        norm: One of ``NORMS``.
        bias: Whether a layer norm adds a bias.
        dropout: The probability of dropping a feature of the part's output while
            training.
        norm_first: Normalize the input of the part (pre-norm, as in GPT-2) instead of
            the sum (post-norm, as in the paper).

    Raises:
        ValueError: If ``norm`` is unknown.

    Sources: Vaswani et al., 2017, "Attention Is All You Need", sections 3.1 and 5.4;
    for pre-norm Xiong et al., 2020, "On Layer Normalization in the Transformer
    Architecture", section 3.3.
    """

    def __init__(
        self,
        *,
        d_model: int,
        norm: str = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.norm = make_norm(norm, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def read(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the input of the part: ``x``, normalized if the norm comes first."""
        return self.norm(x) if self.norm_first else x

    def add(
        self, x: Float[Tensor, "B T D"], output: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T D"]:
        """Return ``x`` plus the part's output, normalized if the norm comes last."""
        x = x + self.dropout(output)
        return x if self.norm_first else self.norm(x)

    def forward(
        self, x: Float[Tensor, "B T D"], part: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B T D"]:
        """Run ``part``, and add its output to ``x``."""
        return self.add(x, part(self.read(x)))


# --8<-- [end:add-norm]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _swiglu_clamped(gate: Tensor, up: Tensor) -> Tensor:
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


class _ReluSquared(torch.autograd.Function):
    """Compute squared ReLU with its gradient written out, which is twice as fast.

    It also returns the ReLU. Only what is an output can be kept for the gradient and
    have a gradient itself, which the second derivative needs. There is no ``jvp``,
    because ``torch.compile`` refuses functions that have one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        positive = F.relu(x)
        return positive * positive, positive

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(output[1])
        ctx.set_materialize_grads(False)  # the first derivative needs no zeros

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Tensor | None:
        (of_square, of_relu), (positive,) = grad_outputs, ctx.saved_tensors
        gradient = None if of_square is None else (of_square * positive).mul_(2)
        if of_relu is None:
            return gradient
        of_relu = of_relu * (positive > 0)
        return of_relu if gradient is None else gradient + of_relu


def _relu_squared(x: Tensor) -> Tensor:
    if not x.requires_grad:  # calling the function costs more than it saves
        return F.relu(x).square()
    return _ReluSquared.apply(x)[0]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": F.relu,
    "relu2": _relu_squared,
    "silu": F.silu,
}
# These take the gate as well, which multiplies the other projection.
GATED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "swiglu": lambda gate, up: F.silu(gate) * up,
    "geglu_tanh": lambda gate, up: _gelu_tanh(gate) * up,
    "swiglu_clamped": _swiglu_clamped,
}


class FeedForward(nn.Module):
    """Project each position to more features, apply an activation, and project back.

    Args:
        d_model: D, the width of input and output.
        d_ff: The width in between; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS`` or of ``GATED``, which have a third matrix,
            ``gate``.
        bias: Whether the matrices add a bias.

    Raises:
        ValueError: If a width is not positive, or ``activation`` is unknown.

    Sources: Vaswani et al., 2017, "Attention Is All You Need", section 3.3; for
    ``swiglu`` and ``geglu_tanh`` Shazeer, 2020, "GLU Variants Improve Transformer";
    for ``swiglu_clamped`` OpenAI, 2025, the published code of gpt-oss.
    """

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        validate_sizes(d_model=d_model, d_ff=d_ff)
        validate_choice("activation", activation, [*ACTIVATIONS, *GATED])
        self.activation: Callable[..., Tensor] = {**ACTIVATIONS, **GATED}[activation]
        gated = activation in GATED
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if gated else None
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Transform each position on its own."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x), self.up(x)))


def rows_of(embedding: nn.Module, vocab_size: int) -> Float[Tensor, "V D"]:
    """Return the row of each token, which a head that is tied to them multiplies.

    A module that took the place of an ``nn.Embedding`` is called for its rows, so that
    what it adds to them, such as an adapter, is part of the head too.
    """
    if isinstance(embedding, nn.Embedding):
        return embedding.weight
    device = numbers_of(embedding).device
    return embedding(torch.arange(vocab_size, device=device))


class HeadNorm(nn.RMSNorm):
    """An RMS norm inside attention, whose input is in 16 bits under autocast.

    It computes in the type of its weights, where PyTorch's own warns that types differ.
    """

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """Return ``x`` divided by its root mean square, times the weights."""
        return super().forward(x.to(self.weight.dtype))


# How many calls evaluate a module now that was training before them.
_evaluated: dict[nn.Module, int] = {}
_lock = Lock()


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Switch a model to evaluation, then restore each module's training mode.

    Several threads may evaluate a model at once: only when the last of them is done
    does it train again. A thread that trains it meanwhile would train it without
    dropout, so let that one train a copy.
    """
    with _lock:
        switched = [m for m in model.modules() if m.training or m in _evaluated]
        for module in switched:
            _evaluated[module] = _evaluated.get(module, 0) + 1
            module.training = False
    try:
        yield
    finally:
        with _lock:
            for module in switched:
                _evaluated[module] -= 1
                if _evaluated[module] == 0:
                    del _evaluated[module]
                    module.training = True
