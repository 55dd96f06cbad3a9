"""One face for every attention: features in, features out, whatever its signature."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.checking.calling import (
    STYLES,
    call_causal,
    call_mha,
    call_ours,
    lifted,
    masked_call,
    parameters_of,
    read_mha,
    read_ours,
    style_of,
    wanted_of,
)
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.projections import find_width, oracles

__all__ = ["Subject", "make_subject"]

_Features = Float[Tensor, "B T D"]
_DROPOUTS = ("dropout", "dropout_p", "attn_dropout", "attention_dropout", "drop", "p")
_REFUSALS = (RuntimeError, TypeError, IndexError, AssertionError)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An attention that can be asked, as a layer from features to features.

    Args:
        name: What to call it.
        style: One of ``STYLES``.
        layer: The layer; what was a function has been given projections.
        call: Calls the layer: features, whether causal, which tokens are real.
        width: D.
        dtype: Of the features.
        num_heads: Heads, if they were given.
        opens: Whether it can attend to both sides.
        pads: Whether it takes a padding mask.
        pieces: Reads features in pieces of these sizes, with a cache; ``None`` if it
            cannot.
        known: A function that computes what the layer should, if one was given.
        has_modes: Whether it knows training from evaluating.
    """

    name: str
    style: str
    layer: Callable[..., Any]
    call: Callable[..., Any]
    width: int
    dtype: torch.dtype
    num_heads: int | None = None
    opens: bool = False
    pads: bool = False
    pieces: Callable[[Any, Tensor, Sequence[int]], Tensor] | None = None
    known: Callable[[Tensor], Tensor] | None = None
    has_modes: bool = False

    def run(
        self,
        x: _Features,
        *,
        causal: bool = True,
        real: Bool[Tensor, "B T"] | None = None,
    ) -> _Features:
        """Attend.

        Args:
            x: The sequence.
            causal: Whether later positions are forbidden.
            real: ``True`` where there is a token, and no padding.

        Raises:
            TypeError: If it gives something that is no tensor.
            ValueError: If it cannot be called so, writes into what it is given, or
                gives another shape.
        """
        x = x.contiguous()  # as layers are used, and some insist
        given = x.detach().clone()
        try:
            output = self.call(self.layer, x, causal, real)
        except _REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot be called with x of {tuple(x.shape)} in the style "
                f"{self.style!r}, and style= may name another: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not torch.equal(given, x.detach()):
            raise ValueError(f"{self.name} writes into the x that it is given")
        return self._checked(output, x)

    def _checked(self, output: object, x: Tensor) -> Tensor:
        if isinstance(output, tuple):
            raise TypeError(
                f"{self.name} returns a tuple of {len(output)}: hand over a module "
                "around it, or a function, that returns the output alone"
            )
        if not isinstance(output, Tensor):
            raise TypeError(f"{self.name} returns a {type(output).__name__}")
        if output.shape != x.shape:
            raise ValueError(
                f"{self.name} gives {tuple(output.shape)} for {tuple(x.shape)}: "
                "attention keeps the shape of what it is given"
            )
        return output

    def read(self, x: _Features, sizes: Sequence[int]) -> _Features | None:
        """Read ``x`` in pieces of these sizes, with a cache; None if it has none.

        Raises:
            ValueError: If it cannot.
        """
        if self.pieces is None:
            return None
        try:
            with torch.no_grad():
                output = self.pieces(self.layer, x, sizes)
        except _REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot read pieces of {tuple(sizes)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return self._checked(output, x)

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    def oracles(self, steps: Steps | None = None) -> list[ExchangeableAttention]:
        """Make layers with the weights of this one, and these steps or the right."""
        if self.module is None:
            return []
        return [
            each.to(torch.float64)
            for each in oracles(self.module, self.num_heads, steps)
        ]

    def without_dropout(self, *, training: bool = False) -> "Subject":
        """Copy it with all dropout switched off, to train or to evaluate."""
        if self.module is None:
            return self
        module = _copied(self.module).train(training)
        for each in module.modules():
            names = ("p",) if isinstance(each, nn.Dropout) else _DROPOUTS
            for name in names:
                if isinstance(getattr(each, name, None), float):
                    setattr(each, name, 0.0)
        return replace(self, layer=module)

    def to(self, dtype: torch.dtype) -> "Subject":
        """Copy it with parameters and features of another type."""
        if self.module is None:
            return replace(self, dtype=dtype)
        # What is asked with is on the CPU; not every device has float64.
        module = _copied(self.module).to("cpu").to(dtype)
        return replace(self, layer=module, dtype=dtype)


def _copied(module: nn.Module) -> nn.Module:
    """Copy a module, even one that keeps its latest weights to be looked at."""
    kept = [value for each in module.modules() for value in vars(each).values()]
    tensors = [each for each in kept if isinstance(each, Tensor) and not each.is_leaf]
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in tensors})


def make_subject(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    known: Callable[[Tensor], Tensor] | None = None,
    pieces: Callable[[Any, Tensor, Sequence[int]], Tensor] | None = None,
) -> Subject:
    """Find out how to call an attention; see ``check_attention``.

    Raises:
        TypeError: If it cannot be called, or its style cannot be told.
        ValueError: If ``style`` is none of ``STYLES``, or its width cannot be told.
    """
    if not callable(attention):
        raise TypeError(
            f"attention must be a function or a module, not {type(attention).__name__}"
        )
    name = getattr(attention, "__name__", type(attention).__name__)
    parameters = parameters_of(attention)
    style = style_of(name, parameters) if style is None else style
    if style not in STYLES:
        raise ValueError(f"style={style!r} must be one of {', '.join(STYLES)}")
    wanted, names = wanted_of(parameters), {*parameters}
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    # Three sequences of features for a module with projections, three of heads else.
    is_layer = style in ("mha", "causal") or len(wanted) == 1 or width is not None
    pads = style == "mha" or bool(names & {"mask", "attn_mask"})
    layer: Callable[..., Any] = attention
    own_pieces = None
    if not is_layer:
        num_heads, width = num_heads or 4, d_model or 24
        layer = lifted(attention, style, parameters, width, num_heads)
        call, own_pieces = call_ours, read_ours
    else:
        width = width if d_model is None else d_model
        if width is None:
            raise ValueError(f"the width of {name} cannot be told: give d_model")
        if style in ("mha", "causal"):
            call = call_mha if style == "mha" else call_causal
            own_pieces = read_mha if style == "mha" else None
        else:
            call = masked_call(style, parameters)
            own_pieces = read_ours if {"cache", "causal"} <= names else None
    if dtype is None:
        movable = isinstance(layer, nn.Module)
        dtype = torch.float64 if movable else torch.float32
    subject = Subject(
        name=name,
        style=style,
        layer=layer,
        call=call,
        width=width,
        dtype=dtype,
        num_heads=num_heads,
        opens=style != "causal",
        pads=pads and style != "causal",
        pieces=own_pieces if pieces is None else pieces,
        known=known,
        has_modes=isinstance(attention, nn.Module),
    ).to(dtype)
    if is_layer and style in ("ours", "sdpa"):
        return _as_it_takes_masks(subject, parameters)
    return subject


def _as_it_takes_masks(
    subject: Subject, parameters: Mapping[str, inspect.Parameter]
) -> Subject:
    """Find out how many axes its masks have, and if it is causal without any."""
    ones = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    real = torch.ones(2, 5, dtype=torch.bool)
    for axes in (4, 3):
        call = masked_call(subject.style, parameters, axes=axes)
        asked = replace(subject, call=call)
        try:
            asked.run(ones, real=real if asked.pads else None)
        except (TypeError, ValueError):
            continue
        if {"causal", "is_causal"} & {*parameters}:
            return asked
        quiet = asked.without_dropout()
        changed = torch.cat([ones[:, :3], 2 * ones[:, 3:].cumsum(dim=-1)], dim=1)
        before, after = (quiet.run(x, causal=False)[:, :3] for x in (ones, changed))
        return replace(asked, opens=not torch.equal(before, after))
    return subject  # which will say what is wrong, when it is asked
