"""All exhibits, by name, in the order in which the book shows them."""

from tested_transformer.checking.exhibits import layouts, permissions, softmaxes
from tested_transformer.checking.exhibits.exhibit import Exhibit

__all__ = ["EXHIBITS"]

_ROOMS = (permissions, softmaxes, layouts)

EXHIBITS: dict[str, Exhibit] = {
    each.name: each
    for room in _ROOMS
    for each in vars(room).values()
    if isinstance(each, Exhibit)
}
