"""What comes in: any attention, called as one layer from features to features.

How to call it, ``calling`` finds out, in one of the ``styles``.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.checking.forms import FormedAttention
from tested_transformer.checking.projections import oracles

__all__ = ["REFUSALS", "Call", "Reader", "Subject", "copied", "moving", "tensors_in"]

_Features = Float[Tensor, "B T D"]
Call = Callable[[Any, Tensor, bool, Tensor | None], Any]
"""Calls a layer: with features, whether it is causal, and which tokens are real."""
Reader = Callable[[Any, Tensor, Sequence[int]], Tensor]
"""Reads features in pieces of given sizes with a layer's cache."""

REFUSALS = (
    *(RuntimeError, TypeError, LookupError, AssertionError),
    *(AttributeError, NameError),
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An attention that can be asked, as a layer from features to features.

    Args:
        name: What to call it in a report.
        style: How it is called; see ``check_attention``.
        layer: The layer; what was a function has been given projections.
        call: Calls the layer: features, whether causal, which tokens are real.
        width: D.
        dtype: The type of the features.
        num_heads: The number of heads, if it was given.
        opens: Whether it can be asked to attend to both sides.
        causal: Whether it can be asked to attend to the past alone.
        pads: Whether it takes a padding mask.
        pieces: Reads features in pieces with a cache; ``None`` if it cannot.
        known: A function that computes what the layer should, if one was given.
        has_modes: Whether it knows training from evaluating.
        batch_first: Whether it takes (B, T, D), and not (T, B, D).
        drawn: The weights that were drawn anew; see ``draw_anew``.
        doubts: Why it may not be what it was taken for.
        notes: What was found out about how it is called.
        guessed: Oracles that were found by trying: of projections without a name that
            is known, or with positions and norms.
        crosses: Calls it with features and with another sequence to read, if it can be.
        refusal: What to say if nothing tells whether it is called rightly.
    """

    name: str
    style: str
    layer: Callable[..., Any]
    call: Call
    width: int
    dtype: torch.dtype
    num_heads: int | None = None
    opens: bool = False
    causal: bool = True
    pads: bool = False
    pieces: Reader | None = None
    known: Callable[[Tensor], Tensor] | None = None
    has_modes: bool = False
    batch_first: bool = True
    drawn: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    guessed: tuple[FormedAttention, ...] = ()
    crosses: Callable[[Any, Tensor, Tensor], Any] | None = None
    refusal: str = ""

    def run(
        self,
        x: _Features,
        *,
        causal: bool = True,
        real: Bool[Tensor, "B T"] | None = None,
    ) -> _Features:
        """Attend.

        Args:
            x: The sequences.
            causal: Whether later positions are forbidden.
            real: ``True`` where there is a token, ``False`` where there is padding.

        Raises:
            TypeError: If it returns something that is no tensor.
            ValueError: If it cannot be called so, writes into what it is given, or
                returns another shape.
        """
        x = x.contiguous()  # as layers are used, and some insist
        given = x.detach().clone()
        try:
            layer = self.layer if self.batch_first else _sequence_first(self.layer)
            output = self.call(layer, x, causal, real)
        except REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot be called with x of {tuple(x.shape)} in the style "
                f"{self.style!r}, and style= may name another: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not torch.equal(given, x.detach()):
            raise ValueError(f"{self.name} writes into the x that it is given")
        return self._checked(output, x)

    def cross(self, x: _Features, context: Float[Tensor, "B S D"]) -> _Features | None:
        """Attend to another sequence, of another length; nothing if it cannot."""
        if self.crosses is None or not self.batch_first:
            return None
        try:
            return self._checked(self.crosses(self.layer, x, context), x)
        except (*REFUSALS, ValueError):
            return None

    def read(self, x: _Features, sizes: Sequence[int]) -> _Features:
        """Read ``x`` in pieces of these sizes, with a cache.

        Raises:
            ValueError: If it cannot.
        """
        assert self.pieces is not None
        try:
            with torch.no_grad():
                output = self.pieces(self.layer, x, sizes)
        except REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot read pieces of {tuple(sizes)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return self._checked(output, x)

    def _checked(self, output: object, x: Tensor) -> Tensor:
        tensors = [*tensors_in(output)]  # with its weights, a cache, or both
        alike = [each for each in tensors if each.shape == x.shape]
        output = (alike or tensors or [output])[0]
        if not isinstance(output, Tensor):
            raise TypeError(f"{self.name} returns a {type(output).__name__}")
        if output.shape != x.shape:
            raise ValueError(
                f"{self.name} gives {tuple(output.shape)} for {tuple(x.shape)}: "
                "attention keeps the shape of what it is given"
            )
        return output

    @property
    def unmasked(self) -> bool:
        """Whether it attends to both sides, at least if it is asked to."""
        return self.opens or not self.causal

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    @property
    def slack(self) -> float:
        """How far apart answers may be that tables of angles were made for."""
        return max((each.form.slack for each in self.guessed), default=0.0)

    def oracles(self, *, beside: bool = False) -> list[FormedAttention]:
        """Return layers with the weights of this one that take the right steps.

        They may leave norms out that it has ``beside`` its projections.
        """
        if self.module is None:
            return []
        if self.guessed:
            return [*self.guessed]
        named = oracles(self.module, self.num_heads, beside=beside)
        return [each.to(torch.float64) for each in named]

    def without_dropout(self, *, training: bool = False) -> "Subject":
        """Copy it with all dropout switched off, to train or to evaluate."""
        if self.module is None:
            return self
        module = copied(self.module).train(training)
        for each in module.modules():
            for name, _ in _dropouts(each):
                setattr(each, name, 0.0)
        return replace(self, layer=module)

    @property
    def dropout(self) -> float:
        """The highest probability of dropping anything that its modules name."""
        modules = self.module.modules() if self.module is not None else ()
        values = [p for each in modules for _, p in _dropouts(each)]
        return max((p for p in values if p < 1), default=0.0)

    def to(self, dtype: torch.dtype) -> "Subject":
        """Copy it with parameters and features of another type."""
        if self.module is None:
            return replace(self, dtype=dtype)
        # What is asked with is on the CPU; not every device has float64.
        module = copied(self.module).to("cpu").to(dtype)
        return replace(self, layer=module, dtype=dtype)


def tensors_in(output: object) -> Iterator[Tensor]:
    """Yield the tensors of what a layer returns, in their order."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (tuple, list)):
        for each in output:
            yield from tensors_in(each)
    elif isinstance(output, Mapping):
        yield from tensors_in([*output.values()])
    elif hasattr(output, "__dataclass_fields__"):
        yield from tensors_in([*vars(output).values()])


def _dropouts(module: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the probabilities of dropping something that a module names."""
    for name, value in vars(module).items():
        dropped = name == "p" or ("drop" in name and not isinstance(module, nn.Dropout))
        if dropped and isinstance(value, float):
            yield name, value


def copied(module: nn.Module) -> nn.Module:
    """Copy a module, even one that keeps its latest weights to be looked at."""
    kept = [value for each in module.modules() for value in vars(each).values()]
    tensors = [each for each in kept if isinstance(each, Tensor) and not each.is_leaf]
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in tensors})


def _sequence_first(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer of (B, T, D) around one of (T, B, D)."""

    def called(*sequences: Tensor, **options: Any) -> Any:
        output = layer(*[each.transpose(0, 1) for each in sequences], **options)
        tensors = [*tensors_in(output)]
        return tensors[0].transpose(0, 1) if tensors else output

    return called


def moving(
    subject: Subject, *, causal: bool = True, real: Bool[Tensor, " T"] | None = None
) -> Iterator[bool]:
    """Yield which of four rows around a token move when this token is changed.

    Args:
        subject: What to ask.
        causal: Whether later positions are forbidden.
        real: Which of five tokens are no padding.
    """
    generator = torch.Generator().manual_seed(13)
    shape = 2, 2, 5, subject.width
    x, other = torch.randn(shape, generator=generator).to(subject.dtype)
    changed = torch.cat([x[:, :2], other[:, 2:3], x[:, 3:]], dim=1)
    mask = None if real is None else real.expand(len(x), -1)
    before, after = (
        subject.run(each, causal=causal, real=mask).detach().double()
        for each in (x, changed)
    )
    for row in (0, 1, 3, 4):
        apart = (after[:, row] - before[:, row]).abs().max()
        yield bool(apart > 1e-6 * (1 + before.abs().max()))
