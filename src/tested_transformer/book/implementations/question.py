"""The question that every implementation is asked, and what counts as an answer.

All of them get the weights of one layer of this library. What they answer is compared
with what that layer answers: the output, and the gradient of every input and of every
parameter, in their own layout.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer.masks import causal_mask
from tested_transformer.multihead import MultiHeadAttention

__all__ = [
    "Implementation",
    "Parameters",
    "Question",
    "Step",
    "answer",
    "by_autograd",
    "gaps",
    "reference",
]

Parameters = dict[str, Tensor]
# Does the work once: returns the output and the gradients, as any kind of arrays.
Step = Callable[[], tuple[Any, Mapping[str, Any]]]


# --8<-- [start:question]
@dataclass(frozen=True)
class Question:
    """What goes in, and the direction in which gradients are taken.

    Args:
        layer: Whose weights all shall use. Its dtype is that of the question.
        x: The sequence that asks.
        direction: Gradients are those of ``(direction * output).sum()``.
        context: The sequence that answers; ``x`` itself by default.
        causal: Whether no position may attend to a later one.
    """

    layer: MultiHeadAttention
    x: Float[Tensor, "B T D"]
    direction: Float[Tensor, "B T D"]
    context: Float[Tensor, "B S D"] | None = None
    causal: bool = False

    @property
    def weights(self) -> Parameters:
        """The weights, by their names in the layer."""
        return self.layer.state_dict()

    @property
    def inputs(self) -> Parameters:
        """The sequences: ``x``, and ``context`` if there is one."""
        context = {} if self.context is None else {"context": self.context}
        return {"x": self.x} | context

    @property
    def mask(self) -> Bool[Tensor, "T S"] | None:
        """The mask, True = may attend."""
        keys = self.x if self.context is None else self.context
        return causal_mask(self.x.shape[1], keys.shape[1]) if self.causal else None


@runtime_checkable
class Implementation(Protocol):
    """What each file of this package offers, beside what it is about."""

    def convert(self, weights: Parameters, num_heads: int) -> Parameters:
        """Lay the weights of the library's layer out as this implementation does."""
        ...

    def prepare(self, question: Question) -> Step:
        """Convert what the question gives, and return the work that is left."""
        ...


# --8<-- [end:question]


# --8<-- [start:compare]
def gaps(implementation: Implementation, question: Question) -> dict[str, float]:
    """Return how far an answer is off, for the output and for each gradient.

    A conversion moves numbers and changes none. So it converts gradients as well: those
    of the library's layer, converted, must be those of the other's parameters.

    Returns:
        The largest difference, of the output as a fraction of its largest entry, of a
        gradient as a fraction of the largest entry that any gradient has. (One of
        them, that of the keys' bias, is zero, and nothing is a fraction of zero.)

    Raises:
        ValueError: If the implementation cannot do what is asked, or if the answer has
            gradients of other names than the parameters that it was given.
    """
    right, given = reference(question), answer(implementation, question)
    weights = {name: right.pop(name) for name in question.weights}
    right |= implementation.convert(weights, question.layer.num_heads)
    if given.keys() != right.keys():
        raise ValueError(f"answers {sorted(given)}, wanted {sorted(right)}")
    largest = {name: each.abs().max().item() for name, each in right.items()}
    scales = dict.fromkeys(right, max(largest[name] for name in {*right} - {"output"}))
    scales["output"] = largest["output"]
    # A NaN is not smaller than anything, nor larger: it would pass for a small gap.
    wrong = {name: (given[name] - each).abs() for name, each in right.items()}
    worst = {name: each.nan_to_num(nan=torch.inf).max() for name, each in wrong.items()}
    return {name: each.item() / scales[name] for name, each in worst.items()}


def answer(implementation: Implementation, question: Question) -> Parameters:
    """Return the output and the gradients of an implementation, as tensors."""
    output, gradients = implementation.prepare(question)()
    arrays = {"output": output, **gradients}
    return {name: _tensor(array, question.x.dtype) for name, array in arrays.items()}


def reference(question: Question) -> Parameters:
    """Return the output and the gradients of the library's layer, in the open."""
    ours = MultiHeadAttention(
        d_model=question.x.shape[-1], num_heads=question.layer.num_heads, fused=False
    ).to(question.x.dtype)

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        how = {"context": context, "causal": question.causal}
        return torch.func.functional_call(ours, parameters, (x,), how)

    output, gradients = by_autograd(call, lambda weights, _: weights, question)()
    return {"output": output, **gradients}


# --8<-- [end:compare]


# --8<-- [start:autograd]
def by_autograd(
    call: Callable[[Parameters, Tensor, Tensor], Tensor],
    convert: Callable[[Parameters, int], Parameters],
    question: Question,
) -> Step:
    """Return the work of an implementation in PyTorch.

    Args:
        call: Returns the output for parameters, ``x`` and ``context``, which is ``x``
            itself where the question has no other.
        convert: Lays the weights out as ``call`` wants its parameters.
        question: What is asked.
    """
    parameters = convert(question.weights, question.layer.num_heads)
    leaves = parameters | question.inputs
    leaves = {name: each.detach().requires_grad_() for name, each in leaves.items()}
    own = {name: leaves[name] for name in parameters}

    def step() -> tuple[Tensor, Parameters]:
        output = call(own, leaves["x"], leaves.get("context", leaves["x"]))
        found = torch.autograd.grad(output, list(leaves.values()), question.direction)
        return output.detach(), dict(zip(leaves, found, strict=True))

    return step


# --8<-- [end:autograd]


def _tensor(array: Any, dtype: torch.dtype) -> Tensor:
    numbers = array if isinstance(array, list) else array.tolist()
    return torch.tensor(numbers, dtype=dtype)
