"""Any attention, wrapped as a layer from features to features.

``calling`` finds out how to call it, in one of the ``styles``.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tested_transformer.checking.forms import FormedAttention
from tested_transformer.checking.projections import oracles

__all__ = ["REFUSALS", "Call", "Reader", "Subject", "copied", "moving", "tensors_in"]

_Features = Float[Tensor, "B T D"]
_Module = TypeVar("_Module", bound=nn.Module)
Call = Callable[[Any, Tensor, bool, Tensor | None], Any]
"""Calls a layer with features, ``causal``, and which tokens are real."""
Reader = Callable[[Any, Tensor, Sequence[int]], Tensor]
"""Calls a layer with features, in pieces of given sizes, with its cache."""

REFUSALS = (
    *(RuntimeError, TypeError, LookupError, AssertionError),
    *(AttributeError, NameError),
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An attention to check, as a layer from features to features.

    Args:
        name: Its name in the report.
        style: How it is called; see ``check_attention``.
        layer: The layer. A function has projections around it.
        call: Calls the layer with features, ``causal``, and which tokens are real.
        width: D.
        dtype: The dtype of the features.
        num_heads: The number of heads, if it was given.
        opens: Whether ``causal=False`` makes it attend to both sides.
        causal: Whether it can be called as causal attention.
        pads: Whether it takes a padding mask.
        pieces: Reads features in pieces with a cache; ``None`` if it cannot.
        known: A function that computes what the layer should, if one was given.
        has_modes: Whether it has a training and an evaluation mode.
        batch_first: Whether it takes (B, T, D) rather than (T, B, D).
        drawn: The names of the weights that were drawn again; see ``draw_anew``.
        doubts: Why it may not be what it was taken for.
        notes: What was found out about how to call it.
        guessed: Oracles that were found by trying, with their projections and forms.
        crosses: Calls it with features and a context, if it can attend to one.
        context: The name of that context, if it need not be given.
        beside: The names of its parameters that are not in the given projections.
        refusal: The error to raise if nothing shows that it is called correctly.
        drops: Whether it may drop anything, also by a probability in its code.
        otherwise: The same layer, called with another kind of mask, if its output is
            then another: both should be right.
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
    context: str = ""
    beside: tuple[str, ...] = ()
    refusal: str = ""
    drops: bool = True
    otherwise: "Subject | None" = None

    def run(
        self,
        x: _Features,
        *,
        causal: bool = True,
        real: Bool[Tensor, "B T"] | None = None,
    ) -> _Features:
        """Return the output of the layer.

        Args:
            x: The sequences.
            causal: Whether to forbid later positions.
            real: ``True`` for tokens, ``False`` for padding.

        Raises:
            TypeError: If the layer returns no tensor.
            ValueError: If the layer cannot be called in this way, modifies its input,
                or returns another shape.
        """
        x = x.contiguous()  # some layers use view
        given = x.detach().clone()
        try:
            if isinstance(self.layer, nn.Module):
                _cut_off(self.layer)
            layer = self.layer if self.batch_first else _sequence_first(self.layer)
            with nullcontext() if self.drops else _WithoutDropout():
                output = self.call(layer, x, causal, real)
        except REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot be called with x of {tuple(x.shape)} in the style "
                f"{self.style!r} (style= selects another): "
                f"{type(error).__name__}: {error}"
            ) from error
        if not torch.equal(given, x.detach()):
            raise ValueError(f"{self.name} writes into the x that it is given")
        return self._checked(output, x)

    @property
    def error_of_chance(self) -> str:
        """The error to raise if one input has two outputs."""
        return (
            f"{self.name} gives two outputs for one input: switch off its dropout "
            "(F.dropout: training=self.training)"
        )

    def cross(self, x: _Features, context: Float[Tensor, "B S D"]) -> _Features | None:
        """Return the output of attending to a context, or ``None`` if it cannot."""
        if self.crosses is None or not self.batch_first:
            return None
        try:
            return self._checked(self.crosses(self.layer, x, context), x)
        except (*REFUSALS, ValueError):
            return None

    def read(self, x: _Features, sizes: Sequence[int]) -> _Features:
        """Return the output for ``x``, read in pieces of these sizes with a cache.

        Raises:
            ValueError: If the layer raises an error.
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
                f"{self.name} returns {tuple(output.shape)} for x of "
                f"{tuple(x.shape)}: attention must keep the shape"
            )
        return output

    @property
    def unmasked(self) -> bool:
        """Whether it can be called to attend to both sides."""
        return self.opens or not self.causal

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    @property
    def slack(self) -> float:
        """The least tolerance of comparisons: tables of angles may be rounded."""
        return max((each.form.slack for each in self.guessed), default=0.0)

    def oracles(self, *, beside: bool = False) -> list[FormedAttention]:
        """Return correct layers with the weights of this one.

        With ``beside``, they may lack what it has beside its projections.
        """
        if self.module is None:
            return []
        if self.guessed:
            return [*self.guessed]
        return [*oracles(self.module, self.num_heads, beside=beside)]

    def without_dropout(self, *, training: bool = False) -> "Subject":
        """Return a copy without dropout, in training or evaluation mode."""
        if self.module is None:
            return self
        module = copied(self.module)
        module.train(training)  # in some it returns nothing
        for each in module.modules():
            for name, _ in _dropouts(each):
                setattr(each, name, 0.0)
        # While evaluating, what is dropped nevertheless is a mistake.
        return replace(self, layer=module, drops=not training)

    @property
    def dropouts(self) -> list[float]:
        """The dropout probabilities of its modules."""
        modules = self.module.modules() if self.module is not None else ()
        return [p for each in modules for _, p in _dropouts(each) if 0 < p < 1]

    @property
    def dropout(self) -> float:
        """The highest dropout probability of its modules."""
        return max(self.dropouts, default=0.0)

    def to(self, dtype: torch.dtype) -> "Subject":
        """Return a copy with parameters and features of another dtype."""
        if self.module is None:
            return replace(self, dtype=dtype)
        # Checks run on the CPU, since not every device has float64.
        module = copied(self.module).to("cpu").to(dtype)
        return replace(self, layer=module, dtype=dtype)


class _WithoutDropout(TorchFunctionMode):
    """Lets functions of PyTorch drop nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.dropout, torch.dropout):
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            args, kwargs = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**kwargs}
            kwargs |= {} if len(args) > 4 else {"dropout_p": 0.0}
        return func(*args, **kwargs)


def tensors_in(output: object) -> Iterator[Tensor]:
    """Yield the tensors in the output of a layer, in order."""
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
    """Yield the names and values of a module's dropout probabilities."""
    for name, value in vars(module).items():
        dropped = name == "p" or ("drop" in name and not isinstance(module, nn.Dropout))
        if dropped and isinstance(value, float):
            yield name, value


def copied(module: _Module) -> _Module:
    """Copy a module, even one that stores its latest attention weights."""
    made: dict[int, Tensor] = {}
    for each in module.modules():
        for value in vars(each).values():
            inside = value.values() if isinstance(value, dict) else value
            for kept in inside if isinstance(value, (dict, list, tuple)) else [value]:
                if isinstance(kept, Tensor) and not kept.is_leaf:
                    made[id(kept)] = kept.detach().clone()
    return copy.deepcopy(module, made)


def _cut_off(module: nn.Module) -> None:
    """Detach what a module keeps of earlier calls, such as a cache of keys."""
    for each in module.modules():
        for name, kept in [*vars(each).items(), *each.named_buffers(recurse=False)]:
            if isinstance(kept, Tensor) and not kept.is_leaf:
                setattr(each, name, kept.detach())


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
    """Yield for rows 0, 1, 3 and 4 whether they change with token 2, of five tokens.

    Args:
        subject: The attention.
        causal: Whether to forbid later positions.
        real: ``False`` for those of the five tokens that are padding.
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
    size = 1 + before.nan_to_num().abs().max()
    for row in (0, 1, 3, 4):
        apart = (after[:, row] - before[:, row]).nan_to_num().abs().max()
        yield bool(apart > 1e-6 * size)
