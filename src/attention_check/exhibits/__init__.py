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
    exhibits = (value for room in rooms for value in vars(room).values())
    return {value.name: value for value in exhibits if isinstance(value, Exhibit)}


# The exhibits by name, in the order of the book.
EXHIBITS = _all_of(permissions, softmaxes, layouts)
# All known bugs, including those that the book did not train with.
KNOWN = EXHIBITS | _all_of(exchanges, positions)
