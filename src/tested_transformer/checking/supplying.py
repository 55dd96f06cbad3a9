"""What a layer wants beside features and masks: tables of angles, places, caches.

Their names say what they are, but not in which shape. All that run are tried.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.styles import Parameters

__all__ = ["Supplied", "supplied"]

_Make = Callable[[Tensor], Any]
"""Makes what a layer wants from the features that it is given."""
_Lay = Callable[[Tensor], Tensor]

_TABLES = re.compile(
    r"position_embed|pos_emb|rotary|rope|cos_sin|freqs|^pe$|^(freqs_)?(cos|sin)$"
)
_STARTS = re.compile(r"start_pos|start_index|offset|past_len|cur_pos|curr_pos")
_PLACES = re.compile(r"position_ids|positions|input_pos|cache_position|^pos(_ids)?$")
_BESIDE = re.compile(
    f"{_STARTS.pattern}|{_PLACES.pattern}|window|cache|past|bias|^ve$|state|layer_idx"
)
_BASE = 1e4


class Supplied(nn.Module):
    """A layer that is given what it wants beside features and masks.

    Args:
        layer: The layer.
        given: What it gets, by name.
        left: The parameters that are left.
        width: For how many features of a head tables of angles are.
        form: Which numbers they have, whatever their first axis.
    """

    def __init__(
        self,
        layer: nn.Module,
        given: Mapping[str, _Make],
        left: Parameters,
        width: int,
        form: int = 0,
    ) -> None:
        super().__init__()
        self.layer, self.given, self.left = layer, dict(given), left
        self.width, self.form = width, form
        if hasattr(layer, "batch_first"):
            self.batch_first = layer.batch_first

    @property
    def positions(self) -> list[str]:
        """The names under which it gets tables of angles."""
        return [name for name in self.given if _TABLES.search(name)]

    def forward(self, *sequences: Tensor, **options: Any) -> Any:
        """Call the layer with what it wants."""
        named = dict(zip(self.left, sequences, strict=False))
        given = {name: make(sequences[0]) for name, make in self.given.items()}
        return self.layer(**named, **given, **options)


def supplied(
    attention: nn.Module,
    parameters: Parameters,
    widths: Sequence[int],
    *,
    with_tables: bool = True,
) -> Iterator[nn.Module]:
    """Yield a layer with what it may want, in each form that has its name.

    It is the layer itself if it wants nothing.

    Args:
        attention: The layer.
        parameters: Those of its call.
        widths: For how many features of a head tables could be.
        with_tables: Whether to give tables of angles that may be left out.
    """
    wanted = _wanted(parameters, with_tables=with_tables)
    if not wanted or any(
        each.kind is each.VAR_POSITIONAL for each in parameters.values()
    ):
        yield attention
        return
    tables = [name for name in wanted if _TABLES.search(name)]
    rest = {name: _others(name) for name in wanted if name not in tables}
    left = {name: each for name, each in parameters.items() if name not in wanted}
    tried = [
        (width, form, given)
        for width in (widths if tables else widths[:1])
        for form, given in _of_tables(tables, width)
    ]
    for width, form, of_tables in tried:
        for chosen in product(*rest.values()):
            given = {**of_tables, **dict(zip(rest, chosen, strict=True))}
            yield Supplied(attention, given, left, width, form + 1000 * width)


def _wanted(parameters: Parameters, *, with_tables: bool) -> list[str]:
    """Return the names of what is no sequence, and no mask, and has to be given."""
    found: list[str] = []
    for name, each in [*parameters.items()][1:]:
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) or "mask" in name:
            continue
        required = each.default is each.empty
        tables = _TABLES.search(name) and (required or with_tables)
        if tables or (required and _BESIDE.search(name)):
            found.append(name)
    return found


def _others(name: str) -> list[_Make]:
    """Return what a thing with a name could be, that is no table."""
    if _STARTS.search(name):
        return [_start]
    if _PLACES.search(name):
        return [_places, _places_of_batch]
    return [_whole_window, _nothing] if "window" in name else [_nothing]


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
    """Yield tables of angles in all shapes and forms, and which form each has."""
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
    """Return a number for what has to do the same: but for a first axis of one."""
    return form + 100 * max(0, _LAYOUTS.index(lay) - 1)


def _tables(
    head_dim: int, lay: _Lay, width: _Lay, which: int | None, x: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    angles = lay(width(_angles(x, head_dim)))
    both = angles.cos().to(x), angles.sin().to(x)
    return both if which is None else both[which]


def _table(head_dim: int, lay: _Lay, form: _Lay, x: Tensor) -> Tensor:
    table = form(lay(_angles(x, head_dim)))
    return table if table.is_complex() else table.to(x)


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
