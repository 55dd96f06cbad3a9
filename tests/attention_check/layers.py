"""Layers as others write them, with and without bugs, for the tests of the checker."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_check import Exhibit, Reference, Rotary, Steps, packed

__all__ = ["Plain", "Stepped", "call", "pieces", "plain_reference"]


class Plain(nn.Module):
    """A plain layer, whose mask, scores and output can be changed."""

    def __init__(self, width: int = 24, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(width, width) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = self.weigh(self.score(q, k), self.allow(x.shape[1]))
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / q.shape[-1] ** 0.5

    def allow(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).tril()

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def plain_reference(layer: Any, **settings: Any) -> Reference:
    """Return what ``Plain`` should compute."""
    parts = {word: getattr(layer, f"{word}_proj") for word in "qkvo"}
    return Reference(**parts, num_heads=layer.num_heads, **{"causal": True} | settings)


class Stepped(nn.Module):
    """A layer that takes steps, one of which may be wrong.

    Args:
        exhibit: The bug; ``None`` for none.
        kind: ``own`` for four projections with shared keys, ``packed`` for one to
            queries, keys and values, or ``rotary`` for the first with positions.
    """

    def __init__(self, exhibit: Exhibit | None, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        settings = {} if exhibit is None else exhibit.settings
        heads, width = (4, 24)
        kv_heads = settings.get("num_kv_heads", 4) if kind == "packed" else 2
        self.wo = nn.Linear(width, width)
        if kind == "packed":
            self.qkv = nn.Linear(width, width + 12 * kv_heads)
            parts = packed(self.qkv, num_heads=heads, num_kv_heads=kv_heads)
        else:
            self.wq, self.wk, self.wv = (nn.Linear(width, x) for x in (24, 12, 12))
            parts = {"q": self.wq, "k": self.wk, "v": self.wv}
            parts |= {"num_heads": heads, "num_kv_heads": kv_heads}
        parts |= {"rotary": Rotary()} if kind == "rotary" else {}
        steps = Steps() if exhibit is None else exhibit.steps
        dropout = settings.get("dropout", 0.1)
        self.own = Reference(**parts, o=self.wo, dropout=dropout, steps=steps)
        self.right = Reference(**parts, o=self.wo)

    def forward(self, x: Tensor, **use: Any) -> Tensor:
        self.own.training = self.training
        return self.own(x, **use)


def call(
    layer: Any,
    x: Tensor,
    *,
    causal: bool,
    real: Tensor | None = None,
    context: Tensor | None = None,
) -> Tensor:
    """Call a layer that has the arguments of a ``Reference``."""
    return layer(x, causal=causal, real=real, context=context)


def pieces(layer: Any, parts: list[Tensor]) -> list[Tensor]:
    """Read with the cache of a ``Stepped``."""
    kept: list[Tensor] = []
    return [layer(part, causal=True, kept=kept) for part in parts]


def fused(layer: Any, x: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
    """Attend by PyTorch's function, with the projections of ``Plain``."""
    q, k, v = (
        project(x).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        for project in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    y = F.scaled_dot_product_attention(q, k, v, mask, **options)
    return layer.o_proj(y.transpose(1, 2).flatten(2))
