"""Published bugs of attention, each of them one step of an exchangeable layer."""

from tested_transformer.checking.exhibits import layouts, permissions, softmaxes
from tested_transformer.checking.exhibits.exhibit import Exhibit, Publication
from tested_transformer.checking.exhibits.layer import (
    ExchangeableAttention,
    Steps,
    with_steps,
)

__all__ = [
    "EXHIBITS",
    "ExchangeableAttention",
    "Exhibit",
    "Publication",
    "Steps",
    "with_steps",
]

# By name, in the order in which the book shows them.
EXHIBITS: dict[str, Exhibit] = {
    each.name: each
    for room in (permissions, softmaxes, layouts)
    for each in vars(room).values()
    if isinstance(each, Exhibit)
}
