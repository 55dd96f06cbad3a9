"""Bugs of positions, norms, windows and caches.

They change nothing in a layer that has none.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_check.exhibits.exhibit import RIGHT, exhibit, issue, other_bug, pull
from attention_check.reference import Reference

_Two = tuple[Tensor, Tensor]
_Three = tuple[Tensor, Tensor, Tensor]


def _with(layer: Reference, **settings: Any) -> Reference:
    """Return a copy of a layer, with the same parts and other settings."""
    twin = copy.copy(layer)
    # Not by setattr, which would also change a module of the original.
    twin.__dict__.update(settings)
    return twin


def _times(layer: Reference, factor: int, at: Tensor) -> Tensor:
    """Return positions that turn ``factor`` times as far."""
    start = 0 if layer.rotary is None else layer.rotary.start
    return factor * (at + start) - start


@other_bug("place")
def rotary_on_queries_alone(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Queries are turned by their positions, and keys are not."""
    return RIGHT.place(layer, q, k, v, t, _times(layer, 0, s))


@other_bug(
    "place",
    pull("PaddlePaddle/PaddleFleet", 1210, "2026, merged"),
    related=(pull("vllm-project/vllm-omni", 3828, "2026, open"),),
)
def rotary_on_keys_alone(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Keys are turned by their positions, and queries are not."""
    return RIGHT.place(layer, q, k, v, _times(layer, 0, t), s)


@other_bug("place")
def rotary_on_values(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Values are turned by their positions, too."""
    return RIGHT.place(layer, q, k, layer.turned(v, s), t, s)


@other_bug("place")
def keys_turned_back(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Queries and keys are turned in opposite directions, which hides the distance."""
    return RIGHT.place(layer, q, k, v, t, _times(layer, -1, s))


@other_bug("place")
def keys_turned_too_far(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Keys are turned as if each stood one position later."""
    return RIGHT.place(layer, q, k, v, t, s + 1)


@other_bug("place")
def keys_turned_too_little(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Keys are turned as if each stood one position earlier."""
    return RIGHT.place(layer, q, k, v, t, s - 1)


@exhibit(
    "place",
    issue("Blaizzy/mlx-vlm", 1983, "2026, closed"),
    related=(
        pull("RobertCsordas/moeut", 6, "2026, open"),
        pull("pytorch/executorch", 2010, "2024, closed"),
    ),
)
# --8<-- [start:rotary_restarts]
def rotary_restarts(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """With a cache, the positions of each new piece begin at zero again."""
    return RIGHT.place(layer, q, k, v, t - t[0], s - s[0])


# --8<-- [end:rotary_restarts]


@exhibit(
    "place",
    issue("facebookresearch/xformers", 841, "2023, open"),
    issue("mlfoundations/open_lm", 4, "2023, closed"),
    issue("tensorgi/TPA", 4, "2025, closed"),
    issue("NVIDIA/audio-flamingo", 27, "2025, closed"),
    pull("vukrosic/leo-optimizer", 2, "2025, merged"),
)
# --8<-- [start:positions_on_heads]
def positions_on_heads(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, t: Tensor, s: Tensor
) -> _Three:
    """Heads are turned by their own numbers instead of by the tokens' positions."""
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    at = torch.arange(q.shape[2]), torch.arange(k.shape[2])
    q, k, v = RIGHT.place(layer, q, k, v, *at)
    return q.transpose(1, 2), k.transpose(1, 2), v


# --8<-- [end:positions_on_heads]


def _turning(
    turn: Callable[[Reference, Tensor, Tensor], Tensor],
    layer: Reference,
    *arguments: Tensor,
) -> _Three:
    """Rotate queries and keys in another way, if the layer rotates them at all."""
    if layer.rotary is not None:
        layer = _with(layer, turned=partial(turn, layer))
    return RIGHT.place(layer, *arguments)


def _first_of_pairs(rotary: Any, x: Tensor) -> Tensor:
    """Return for each feature whether it is the first of its pair."""
    width = 2 * len(rotary.rates_of(x.shape[-1]))
    return F.pad(rotary.first_of_pairs(width), (0, x.shape[-1] - width))


def _signed(first: int, second: int, layer: Reference, x: Tensor, at: Tensor) -> Tensor:
    """Rotate with other signs of the sines of the two features of a pair."""
    # Half the sum of a rotation and its inverse is the cosine part; half their
    # difference is the sine part.
    there, back = layer.turned(x, at), layer.turned(x, _times(layer, -1, at))
    factors = torch.where(_first_of_pairs(layer.rotary, x), first, second)
    return (there + back) / 2 + (there - back) / 2 * factors


@other_bug("place")
def sine_without_minus(layer: Reference, *arguments: Tensor) -> _Three:
    """A sine of the rotation lacks its minus sign, so that pairs are mirrored."""
    return _turning(partial(_signed, -1, 1), layer, *arguments)


@other_bug("place")
def sine_with_two_minuses(layer: Reference, *arguments: Tensor) -> _Three:
    """Both sines of the rotation have a minus sign, so that pairs are mirrored."""
    return _turning(partial(_signed, 1, -1), layer, *arguments)


def _of_the_other_pairing(layer: Reference, x: Tensor, at: Tensor) -> Tensor:
    """Rotate by angles from a table for the other pairing."""
    rotary: Any = layer.rotary
    rates = rotary.rates_of(x.shape[-1])
    if rotary.pairing == "halves":
        first, second = rates.repeat_interleave(2).chunk(2)
    else:
        first, second = (rates.repeat(2)[start::2] for start in (0, 1))
    # The two features of a pair get different angles.
    by_first, by_second = rotary.turn(x, at, first), rotary.turn(x, at, second)
    return torch.where(_first_of_pairs(rotary, x), by_first, by_second)


@other_bug(
    "place",
    issue("xiangking/ark-nlp", 47, "2022, closed"),
    pull("facebookresearch/vjepa2", 15, "2025, open"),
    pull("raiyanyahya/how-to-train-your-gpt", 7, "2026, closed"),
)
def angles_of_the_other_pairing(layer: Reference, *arguments: Tensor) -> _Three:
    """The table of angles belongs to another pairing than the rotation of features."""
    return _turning(_of_the_other_pairing, layer, *arguments)


def _of_the_width(layer: Reference, x: Tensor, at: Tensor) -> Tensor:
    rotary: Any = layer.rotary
    d_model = layer.num_heads * x.shape[-1]
    width = 2 * len(rotary.rates_of(x.shape[-1]))
    rates = rotary.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / d_model)
    return rotary.turn(x, at, rates)


@other_bug("place")
def rates_of_the_width(layer: Reference, *arguments: Tensor) -> _Three:
    """The angles are computed from the model's width instead of the head's."""
    return _turning(_of_the_width, layer, *arguments)


@other_bug("place")
def norm_of_queries_alone(layer: Reference, *arguments: Tensor) -> _Three:
    """Queries are normalized, but keys are not."""
    return RIGHT.place(_with(layer, norm_k=None), *arguments)


@other_bug("place", related=(issue("kyegomez/MegaVIT", 17, "2024, closed"),))
def norm_of_keys_alone(layer: Reference, *arguments: Tensor) -> _Three:
    """Keys are normalized, but queries are not."""
    return RIGHT.place(_with(layer, norm_q=None), *arguments)


@other_bug("place", pull("Cerebras/modelzoo", 85, "2026, open"))
def norms_lost(layer: Reference, *arguments: Tensor) -> _Three:
    """The layer has norms for queries and keys, but does not use them."""
    return RIGHT.place(_with(layer, norm_q=None, norm_k=None), *arguments)


@other_bug("attend", pull("meta-pytorch/attention-gym", 86, "2024, merged"))
def alibi_upside_down(layer: Reference, *arguments: Any) -> Any:
    """The bias of ALiBi has the wrong sign, so that distant keys get more weight."""
    if layer.alibi is not None and layer.alibi is not False:
        layer = _with(layer, alibi=-layer.slopes)
    return RIGHT.attend(layer, *arguments)


def _reach(layer: Reference) -> int:
    """Return how many keys before its own a query sees in its window."""
    window = layer.window or 0
    return window[0] if isinstance(window, tuple) else window - 1


@exhibit(
    "attend",
    issue("huggingface/transformers", 39408, "2025, closed"),
    pull("ml-explore/mlx-lm", 390, "2025, merged"),
    pull("AI-Hypercomputer/maxtext", 4289, "2026, merged"),
)
# --8<-- [start:window_too_wide]
def window_too_wide(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, mask: Any, t: Tensor, s: Tensor
) -> Any:
    """The window includes one key too many."""
    if layer.window is not None:
        added = s == t[:, None] - _reach(layer) - 1
        # A key that nobody sees is padding, which stays hidden.
        mask = mask | (added & mask.any(-2, keepdim=True) if mask.ndim > 2 else added)
    return RIGHT.attend(layer, q, k, v, mask, t, s)


# --8<-- [end:window_too_wide]


@other_bug("attend", pull("lightseekorg/tokenspeed", 578, "2026, merged"))
def window_too_narrow(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, mask: Any, t: Tensor, s: Tensor
) -> Any:
    """The window includes one key too few."""
    if layer.window is not None:
        mask = mask & (s != t[:, None] - _reach(layer))
    return RIGHT.attend(layer, q, k, v, mask, t, s)


@exhibit(
    "extend",
    issue("jingtian11/EasyOffer", 2, "2025, open"),
    related=(pull("alex-hh/profam", 168, "2024, merged"),),
)
# --8<-- [start:old_keys_lost]
def old_keys_lost(kept: list[Tensor], k: Tensor, v: Tensor) -> _Two:
    """The cache returns only the keys and values of the newest piece."""
    return k, v


# --8<-- [end:old_keys_lost]


@other_bug("extend")
def new_before_old(kept: list[Tensor], k: Tensor, v: Tensor) -> _Two:
    """The cache puts new keys and values before the old ones."""
    if not kept:
        return k, v
    return torch.cat([k, kept[0]], dim=2), torch.cat([v, kept[1]], dim=2)


@other_bug("extend")
def keys_and_values_exchanged_in_the_cache(
    kept: list[Tensor], k: Tensor, v: Tensor
) -> _Two:
    """Keys and values are exchanged when they are kept."""
    return RIGHT.extend(kept[::-1], k, v)
