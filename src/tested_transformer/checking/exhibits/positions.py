"""Bugs of positions and norms inside attention, each a change of a ``Form``.

The museum does not show them, since its layer has neither.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checking.exhibits.exhibit import exhibit

__all__ = [
    "alibi_upside_down",
    "angles_of_the_other_pairing",
    "keys_turned_back",
    "keys_turned_too_far",
    "keys_turned_too_little",
    "norm_of_keys_alone",
    "norm_of_queries_alone",
    "norms_lost",
    "rates_of_the_width",
    "rotary_on_keys_alone",
    "rotary_on_queries_alone",
    "rotary_on_values",
    "sine_with_two_minuses",
    "sine_without_minus",
]

_Form = Any  # importing Form here would be circular
_Three = tuple[Tensor, Tensor, Tensor]


def _turning(form: _Form, turn: Callable[..., _Three]) -> _Form:
    """Return a form that rotates queries, keys and values in another way."""
    return form if form.rotary is None else replace(form, place=partial(_place, turn))


# Not inside a function, which would define it again for each form that is tried.
def _place(
    turn: Callable[..., _Three], form: _Form, q: Tensor, k: Tensor, v: Tensor, *at: Any
) -> _Three:
    if form.norms_first:
        q, k = form.normed(q, k)
    q, k, v = turn(form.rotary, q, k, v, *at)
    if not form.norms_first:
        q, k = form.normed(q, k)
    return q, k, v


def _by_factors(
    factors: tuple[int, int, int],
    shift: int,
    rotary: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor,
    s: Tensor,
) -> _Three:
    """Rotate by positions times a factor, with the positions of keys shifted."""
    of_queries, of_keys, of_values = factors
    return (
        rotary.turn(q, of_queries * t),
        rotary.turn(k, of_keys * (s + shift)),
        rotary.turn(v, of_values * s) if of_values else v,
    )


def _turned(form: _Form, queries: int, keys: int, values: int, shift: int = 0) -> _Form:
    return _turning(form, partial(_by_factors, (queries, keys, values), shift))


@exhibit("form")
def rotary_on_queries_alone(form: _Form) -> _Form:
    """Queries are turned by their positions, and keys are not."""
    return _turned(form, 1, 0, 0)


@exhibit("form")
def rotary_on_keys_alone(form: _Form) -> _Form:
    """Keys are turned by their positions, and queries are not."""
    return _turned(form, 0, 1, 0)


@exhibit("form")
def rotary_on_values(form: _Form) -> _Form:
    """Values are turned by their positions, too."""
    return _turned(form, 1, 1, 1)


@exhibit("form")
def keys_turned_back(form: _Form) -> _Form:
    """Queries and keys are turned in opposite directions, which hides the distance."""
    return _turned(form, 1, -1, 0)


@exhibit("form")
def keys_turned_too_far(form: _Form) -> _Form:
    """Keys are turned as if each stood one position later."""
    return _turned(form, 1, 1, 0, shift=1)


@exhibit("form")
def keys_turned_too_little(form: _Form) -> _Form:
    """Keys are turned as if each stood one position earlier."""
    return _turned(form, 1, 1, 0, shift=-1)


def _first_of_pairs(rotary: Any, x: Tensor) -> Tensor:
    """Return for each feature whether it is the first of its pair."""
    features = torch.arange(x.shape[-1])
    halves = rotary.pairing == "halves"
    return features < rotary.width // 2 if halves else features % 2 == 0


def _both(
    change: Callable[..., Tensor],
    rotary: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    t: Tensor,
    s: Tensor,
) -> _Three:
    return change(rotary, q, t), change(rotary, k, s), v


def _signed(signs: tuple[int, int], rotary: Any, x: Tensor, at: Tensor) -> Tensor:
    """Rotate with other signs of the sines of the two features of a pair."""
    # Half the sum of a rotation and its inverse is the cosine part; half their
    # difference is the sine part.
    there, back = rotary.turn(x, at), rotary.turn(x, -at)
    factors = torch.where(_first_of_pairs(rotary, x), *signs)
    return (there + back) / 2 + (there - back) / 2 * factors


@exhibit("form")
def sine_without_minus(form: _Form) -> _Form:
    """A sine of the rotation lacks its minus sign, so that pairs are mirrored."""
    return _turning(form, partial(_both, partial(_signed, (-1, 1))))


@exhibit("form")
def sine_with_two_minuses(form: _Form) -> _Form:
    """Both sines of the rotation have a minus sign, so that pairs are mirrored."""
    return _turning(form, partial(_both, partial(_signed, (1, -1))))


def _of_the_other_pairing(rotary: Any, x: Tensor, at: Tensor) -> Tensor:
    """Rotate by angles from a table for the other pairing."""
    rates = rotary.rates
    if rotary.pairing == "halves":
        first, second = rates.repeat_interleave(2).chunk(2)
    else:
        first, second = (rates.repeat(2)[start::2] for start in (0, 1))
    # The two features of a pair get different angles.
    one, other = rotary.turn(x, at, first), rotary.turn(x, at, second)
    return torch.where(_first_of_pairs(rotary, x), one, other)


@exhibit("form")
def angles_of_the_other_pairing(form: _Form) -> _Form:
    """The table of angles belongs to another pairing than the rotation of features."""
    return _turning(form, partial(_both, _of_the_other_pairing))


def _of_the_width(rotary: Any, x: Tensor, at: Tensor) -> Tensor:
    width = x.shape[1] * x.shape[-1]
    steps = torch.arange(0, rotary.width, 2, dtype=torch.float64) / width
    return rotary.turn(x, at, rotary.base**-steps)


@exhibit("form")
def rates_of_the_width(form: _Form) -> _Form:
    """The angles are computed from the model's width instead of the head's."""
    return _turning(form, partial(_both, _of_the_width))


@exhibit("form")
def alibi_upside_down(form: _Form) -> _Form:
    """The bias of ALiBi has the wrong sign, so that distant keys get more weight."""
    if form.slopes is None:
        return form
    return replace(form, slopes=tuple(-each for each in form.slopes))


@exhibit("form")
def norm_of_queries_alone(form: _Form) -> _Form:
    """Queries are normalized, but keys are not."""
    return form if form.norms is None else replace(form, norms=(form.norms[0], None))


@exhibit("form")
def norm_of_keys_alone(form: _Form) -> _Form:
    """Keys are normalized, but queries are not."""
    return form if form.norms is None else replace(form, norms=(None, form.norms[1]))


@exhibit("form")
def norms_lost(form: _Form) -> _Form:
    """The layer has norms for queries and keys, but does not use them."""
    return replace(form, norms=None)
