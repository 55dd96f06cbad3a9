"""Published bugs of attention, each of them one step of an exchangeable layer."""

from tested_transformer.checking.exhibits.exhibit import Exhibit, Publication
from tested_transformer.checking.exhibits.gallery import EXHIBITS
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
