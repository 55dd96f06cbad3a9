"""Published bugs of attention, each of them one step of the reference."""

from types import ModuleType

from attention_check.exhibits import (
    exchanges,
    layouts,
    permissions,
    positions,
    softmaxes,
)
from attention_check.exhibits.exhibit import Exhibit, Publication

__all__ = ["EXHIBITS", "KNOWN", "Exhibit", "Publication"]


def _all_of(*rooms: ModuleType) -> dict[str, Exhibit]:
    exhibits = (each for room in rooms for each in vars(room).values())
    return {each.name: each for each in exhibits if isinstance(each, Exhibit)}


# The exhibits by name, in the order of the book.
EXHIBITS = _all_of(permissions, softmaxes, layouts)
# All known bugs, including those that the book did not train with.
KNOWN = EXHIBITS | _all_of(exchanges, positions)
