"""Supply the other arguments of a layer: tables of angles, positions, caches.

Their names tell what they are, but not their shapes. So all known shapes are tried, and
other layouts of the features, too.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.forms import alibi_slopes_of
from tested_transformer.checking.styles import (
    READ,
    Parameters,
    is_mask,
    sequences_of,
)
from tested_transformer.checking.subject import tensors_in

__all__ = ["IMAGES", "LAYOUTS", "LEVELS", "Supplied", "supplied"]

_Make = Callable[[Tensor], Any]
"""Makes an argument of a layer, given its features."""
_Lay = Callable[[Tensor], Tensor]

_TABLES = re.compile(
    r"position_embed|pos_emb|rotary|rope|cos_sin|freqs|freq_cis|^pe$|"
    r"^(freqs_)?(cos|sin)$"
)
_STARTS = re.compile(r"start_pos|start_index|offset|past_len|cur_pos|curr_pos")
_PLACES = re.compile(r"position_ids|positions|input_pos|cache_position|^pos(_ids)?$")
_BESIDE = re.compile(
    f"{_STARTS.pattern}|{_PLACES.pattern}|window|cache|past|bias|^ve$|(?<!hidden_)state|layer_idx"
)
_SIZES = re.compile(r"^(h|height)$|^(w|width)$", re.IGNORECASE)
_THREE = re.compile(r"q|k|v|x|quer(y|ies)|keys?|values?|inputs?", re.IGNORECASE)
_BASE = 1e4
# How much to supply: 0 only required arguments of known names; 1 also optional tables;
# 2 also optional positions and all other required arguments; 3 also a context.
LEVELS = range(4)


class Supplied(nn.Module):
    """A layer that gets the arguments that it needs besides features and masks.

    Args:
        layer: The layer.
        given: What makes each of these arguments, by name.
        left: The other parameters of the layer.
        width: The number of features of a head that the tables of angles are for.
        form: A number for the form of these tables. Tables that differ only in a first
            axis of one share it.
        layout: How its features are laid out; one of ``LAYOUTS``.
    """

    def __init__(
        self,
        layer: nn.Module,
        given: Mapping[str, _Make],
        left: Parameters,
        width: int,
        form: int = 0,
        layout: str = "",
    ) -> None:
        super().__init__()
        self.layer, self.given, self.left = layer, dict(given), left
        self.width, self.form, self.layout = width, form, layout
        if hasattr(layer, "batch_first"):
            self.batch_first = layer.batch_first

    @property
    def positions(self) -> list[str]:
        """The names of the arguments that are tables of angles."""
        return [name for name in self.given if _TABLES.search(name)]

    def forward(self, *sequences: Tensor, **options: Any) -> Any:
        """Call the layer with the supplied arguments."""
        given = {name: make(sequences[0]) for name, make in self.given.items()}
        names = sequences_of(self.left) or [*self.left]

        def call(*laid: Tensor, **options: Any) -> Any:
            named = dict(zip(names, laid, strict=False))
            return self.layer(**named, **given, **options)

        return LAYOUTS[self.layout](call, *sequences, **options)


def _as_they_are(call: Callable[..., Any], *sequences: Tensor, **options: Any) -> Any:
    return call(*sequences, **options)


def _first(output: object) -> Tensor:
    """Return the first tensor in the output of a layer.

    Raises:
        TypeError: If there is none.
    """
    for each in tensors_in(output):
        return each
    raise TypeError(f"returns a {type(output).__name__}")


def _features_first(
    call: Callable[..., Any], *sequences: Tensor, **options: Any
) -> Any:
    output = call(*[each.mT for each in sequences], **options)
    return _first(output).mT


def _images(call: Callable[..., Any], *sequences: Tensor, **options: Any) -> Any:
    """Call with (B, D, T, 1), an image with a row for each token."""
    output = call(*[each.mT[..., None] for each in sequences], **options)
    return _first(output).squeeze(-1).mT


def _one_at_a_time(call: Callable[..., Any], *sequences: Tensor, **options: Any) -> Any:
    """Call with (T, D) for each sequence of a batch."""
    outputs: list[Tensor] = []
    for at, each in enumerate(zip(*sequences, strict=True)):
        own = {
            name: value[at] if isinstance(value, Tensor) and value.ndim > 2 else value
            for name, value in options.items()
        }
        outputs.append(_first(call(*each, **own)))
    return torch.stack(outputs)


IMAGES = "images, (B, D, H, W)"
LAYOUTS: dict[str, Callable[..., Any]] = {
    "": _as_they_are,
    "features before tokens, (B, D, T)": _features_first,
    IMAGES: _images,
    "no batch, (T, D)": _one_at_a_time,
}


def supplied(
    attention: nn.Module,
    parameters: Parameters,
    widths: Sequence[int],
    *,
    level: int = 1,
    layout: str = "",
    num_heads: int = 1,
) -> Iterator[nn.Module]:
    """Yield a layer with its other arguments, in each form that they could have.

    If it needs none, yield the layer itself.

    Args:
        attention: The layer.
        parameters: The parameters of its call.
        widths: The numbers of features of a head that tables could be for.
        level: How much to supply; one of ``LEVELS``.
        layout: How its features are laid out; one of ``LAYOUTS``.
        num_heads: The number of heads.
    """
    given_names = _given(parameters, level)
    left = {
        name: _asked_for(each, level)
        for name, each in parameters.items()
        if name not in given_names
    }
    if left == parameters and not layout:
        yield attention
        return
    if any(each.kind is each.VAR_POSITIONAL for each in parameters.values()):
        return
    tables = [name for name in given_names if _TABLES.search(name)]
    if tables and layout:  # layers with rotary positions take (B, T, D)
        return
    rest = {
        name: _others(name, num_heads) for name in given_names if name not in tables
    }
    tried = [
        (width, form, given)
        for width in (widths if tables else widths[:1])
        for form, given in _of_tables(tables, width)
    ]
    for width, form, of_tables in tried:
        for chosen in product(*rest.values()):
            given = {**of_tables, **dict(zip(rest, chosen, strict=True))}
            kind = form + 1000 * width
            yield Supplied(attention, given, left, width, kind, layout)


def _given(parameters: Parameters, level: int) -> list[str]:
    """Return the names of the arguments to supply: neither sequences nor masks."""
    found: list[str] = []
    for name, each in [*parameters.items()][1:]:
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) or is_mask(name):
            continue
        required = each.default is each.empty
        table, place = _TABLES.search(name), _PLACES.search(name)
        read = _THREE.fullmatch(name) or _is_read(name)
        known = table or (_BESIDE.search(name) and not read)
        if (
            (required and known)
            or (table and level > 0)
            or (place and level > 1)
            or (required and not read and level > 1)
        ):
            found.append(name)
    return found


def _asked_for(parameter: inspect.Parameter, level: int) -> inspect.Parameter:
    """Return a parameter; at the highest level, make that of a context required."""
    named = parameter.kind is not parameter.VAR_KEYWORD
    if level == LEVELS[-1] and _is_read(parameter.name) and named:
        return parameter.replace(default=parameter.empty)
    return parameter


def _is_read(name: str) -> bool:
    """Return whether this is the name of a context."""
    beside = re.search("past|cache|bias|len", name) or is_mask(name)
    return bool(READ.search(name)) and not beside


def _others(name: str, num_heads: int) -> list[_Make]:
    """Return what could make an argument of this name, other than a table."""
    if _STARTS.search(name):
        return [_start]
    if _PLACES.search(name):
        return [_places, _places_of_batch]
    if sizes := _SIZES.search(name):
        return [_length if sizes[1] else _one]
    if "alibi" in name:
        return [_nothing, partial(_alibi, num_heads)]
    if name == "residual":
        return [torch.zeros_like]
    return [_whole_window, _nothing] if "window" in name else [_nothing]


def _length(x: Tensor) -> int:
    return x.shape[1]


def _one(x: Tensor) -> int:
    return 1


def _alibi(num_heads: int, x: Tensor) -> Tensor:
    """Return the bias of ALiBi in the shape that Bloom takes, (B * H, 1, T)."""
    slopes = torch.tensor([*next(alibi_slopes_of(num_heads))])
    biases = slopes[:, None, None] * torch.arange(x.shape[1])
    return biases.repeat(len(x), 1, 1).to(x)


def _start(x: Tensor) -> int:
    return 0


def _places(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1])


def _places_of_batch(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1])[None]


def _whole_window(x: Tensor) -> tuple[int, int]:
    return -1, 0


def _nothing(x: Tensor) -> None:
    return None


def _of_tables(
    names: Sequence[str], head_dim: int
) -> Iterator[tuple[int, dict[str, _Make]]]:
    """Yield tables of angles in all shapes and forms, each with its form's number."""
    if not names:
        yield 0, {}
        return
    cosines = [name for name in names if "cos" in name and "sin" not in name]
    sines = [name for name in names if "sin" in name and "cos" not in name]
    for (form, width), lay in product(enumerate(_WIDTHS), _LAYOUTS):
        if cosines and sines:
            first = dict.fromkeys(cosines, partial(_tables, head_dim, lay, width, 0))
            rest = dict.fromkeys(sines, partial(_tables, head_dim, lay, width, 1))
            yield _kind(form, lay), {**first, **rest}
        else:
            made = partial(_tables, head_dim, lay, width, None)
            yield _kind(form, lay), dict.fromkeys(names, made)
    if not (cosines and sines):
        whole = enumerate((_turns, _turned_pairs, _matrices), start=len(_WIDTHS))
        for (form, make), lay in product(whole, _LAYOUTS):
            table = partial(_table, head_dim, lay, make)
            yield _kind(form, lay), dict.fromkeys(names, table)


def _kind(form: int, lay: _Lay) -> int:
    """Return the same number for tables that differ only in a first axis of one."""
    return form + 100 * max(0, _LAYOUTS.index(lay) - 1)


def _tables(
    head_dim: int, lay: _Lay, width: _Lay, which: int | None, x: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    angles = lay(width(_angles(x, head_dim)))
    both = angles.cos().to(x), angles.sin().to(x)
    return both if which is None else both[which]


def _table(head_dim: int, lay: _Lay, form: _Lay, x: Tensor) -> Tensor:
    table = form(lay(_angles(x, head_dim)))
    if not table.is_complex():
        return table.to(x)
    # In half precision, as in Llama, turns are complex64.
    return table if x.dtype == torch.float64 else table.to(torch.complex64)


def _turns(angles: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(angles), angles)


def _turned_pairs(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def _matrices(angles: Tensor) -> Tensor:
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([cos, -sin, sin, cos], dim=-1).unflatten(-1, (2, 2))


def _angles(x: Tensor, head_dim: int) -> Tensor:
    rates = _BASE ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return torch.outer(torch.arange(x.shape[1], dtype=torch.float64), rates)


_WIDTHS: tuple[_Lay, ...] = (
    lambda angles: torch.cat([angles, angles], dim=-1),
    lambda angles: angles,
    lambda angles: angles.repeat_interleave(2, dim=-1),
)
_LAYOUTS: tuple[_Lay, ...] = (
    lambda table: table[None],  # (1, T, d)
    lambda table: table,  # (T, d)
    lambda table: table[None, None],  # (1, 1, T, d)
    lambda table: table[None, :, None],  # (1, T, 1, d)
)
