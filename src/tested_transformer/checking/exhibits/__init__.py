"""Published bugs of attention, each of them one step of an exchangeable layer."""

from types import ModuleType

from tested_transformer.checking.exhibits import (
    exchanges,
    layouts,
    permissions,
    positions,
    softmaxes,
)
from tested_transformer.checking.exhibits.exhibit import Exhibit, Publication
from tested_transformer.checking.exhibits.layer import (
    ExchangeableAttention,
    Steps,
    with_steps,
)

__all__ = [
    "EXHIBITS",
    "KNOWN",
    "ExchangeableAttention",
    "Exhibit",
    "Publication",
    "Steps",
    "with_steps",
]


def _all_of(*rooms: ModuleType) -> dict[str, Exhibit]:
    exhibits = (each for room in rooms for each in vars(room).values())
    return {each.name: each for each in exhibits if isinstance(each, Exhibit)}


# The exhibits by name, in the order of the book.
EXHIBITS = _all_of(permissions, softmaxes, layouts)
# All known bugs, including those that the museum does not show.
KNOWN = EXHIBITS | _all_of(exchanges, positions)
