"""The question that every implementation answers, and how answers are compared.

All implementations get the weights of one layer of this library. Their answers are
compared with the layer's: the output, and the gradient of every input and parameter, in
the implementation's own layout.
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
# A function that computes once, and returns output and gradients in arrays of any kind.
Step = Callable[[], tuple[Any, Mapping[str, Any]]]


@dataclass(frozen=True)
class Question:
    """The input, and the direction in which gradients are taken.

    Args:
        layer: The layer whose weights and dtype all use.
        x: The sequence of the queries.
        direction: Gradients are those of ``(direction * output).sum()``.
        context: The sequence of keys and values; ``x`` by default.
        causal: Whether to forbid attending to later positions.
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
    """The two functions that each implementation offers."""

    def convert(self, weights: Parameters, num_heads: int) -> Parameters:
        """Return the weights of the library's layer in this implementation's layout."""
        ...

    def prepare(self, question: Question) -> Step:
        """Convert the question's input, and return the function that computes."""
        ...


def gaps(implementation: Implementation, question: Question) -> dict[str, float]:
    """Return how far an answer is off, for the output and for each gradient.

    A conversion only rearranges numbers, so it applies to gradients as well: the
    gradients of the library's layer, converted, must equal those of the
    implementation's parameters.

    Returns:
        The largest difference: for the output as a fraction of its largest entry, for a
        gradient as a fraction of the largest entry of any gradient. (The gradient of
        the keys' bias is zero, so it cannot be its own scale.)

    Raises:
        ValueError: If the implementation cannot answer the question, or the names of
            its gradients are not those of its parameters.
    """
    right, results = reference(question), answer(implementation, question)
    weights = {name: right.pop(name) for name in question.weights}
    right |= implementation.convert(weights, question.layer.num_heads)
    if results.keys() != right.keys():
        raise ValueError(f"answer has {sorted(results)}; it must have {sorted(right)}")
    largest = {name: value.abs().max().item() for name, value in right.items()}
    scales = dict.fromkeys(right, max(largest[name] for name in {*right} - {"output"}))
    scales["output"] = largest["output"]
    # Comparisons with NaN are false, so NaN could pass for a small gap.
    wrong = {name: (results[name] - value).abs() for name, value in right.items()}
    worst = {name: gap.nan_to_num(nan=torch.inf).max() for name, gap in wrong.items()}
    return {name: gap.item() / scales[name] for name, gap in worst.items()}


def answer(implementation: Implementation, question: Question) -> Parameters:
    """Return the output and the gradients of an implementation, as tensors."""
    output, gradients = implementation.prepare(question)()
    arrays = {"output": output, **gradients}
    return {name: _tensor(array, question.x.dtype) for name, array in arrays.items()}


def reference(question: Question) -> Parameters:
    """Return the output and the gradients of the library's layer, not fused."""
    ours = MultiHeadAttention(
        d_model=question.x.shape[-1], num_heads=question.layer.num_heads, fused=False
    ).to(question.x.dtype)

    def call(parameters: Parameters, x: Tensor, context: Tensor) -> Tensor:
        how = {"context": context, "causal": question.causal}
        return torch.func.functional_call(ours, parameters, (x,), how)

    output, gradients = by_autograd(call, lambda weights, _: weights, question)()
    return {"output": output, **gradients}


def by_autograd(
    call: Callable[[Parameters, Tensor, Tensor], Tensor],
    convert: Callable[[Parameters, int], Parameters],
    question: Question,
) -> Step:
    """Return the step of an implementation in PyTorch, with gradients by autograd.

    Args:
        call: A function from parameters, ``x`` and ``context`` to the output. If the
            question has no context, it gets ``x`` again.
        convert: A function that converts the weights to the parameters of ``call``.
        question: The question to answer.
    """
    parameters = convert(question.weights, question.layer.num_heads)
    leaves = parameters | question.inputs
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    own = {name: leaves[name] for name in parameters}

    def step() -> tuple[Tensor, Parameters]:
        output = call(own, leaves["x"], leaves.get("context", leaves["x"]))
        grads = torch.autograd.grad(output, list(leaves.values()), question.direction)
        return output.detach(), dict(zip(leaves, grads, strict=True))

    return step


def _tensor(array: Any, dtype: torch.dtype) -> Tensor:
    numbers = array if isinstance(array, list) else array.tolist()
    return torch.tensor(numbers, dtype=dtype)
