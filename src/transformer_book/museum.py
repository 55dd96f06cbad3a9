"""The museum's layer and models made of it, and the kill matrix of checks and bugs."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attention_check import CHECKS, Exhibit, Reference, Steps
from attention_check.checker import run_checks
from tested_transformer.cache import DenseCache
from tested_transformer.gpt import GPT
from tested_transformer.multihead import SOFTMAX, MultiHeadAttention

__all__ = [
    "ExchangeableAttention",
    "alone",
    "exhibit_layer",
    "kill_matrix",
    "redundant",
    "with_steps",
]


class ExchangeableAttention(Reference):
    """Multi-head self-attention in which each step can be replaced, for a GPT.

    Args:
        d_model: D, the width of input and output.
        num_heads: H; divides ``d_model``.
        num_kv_heads: Heads of keys and values; ``num_heads`` by default.
        dropout: The probability of dropping a weight while training.
        bias: Whether the projections add a bias.
        steps: The steps to take; by default the correct ones.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        steps: Steps | None = None,
    ) -> None:
        d_kv = d_model // num_heads * (num_kv_heads or num_heads)
        q, k, v, o = (
            nn.Linear(d_model, width, bias=bias)
            for width in (d_model, d_kv, d_kv, d_model)
        )
        super().__init__(
            q=q,
            k=k,
            v=v,
            o=o,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            dropout=dropout,
            steps=steps,
        )
        self.head_dim = d_model // num_heads

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        window: None = None,
        score_bias: None = None,
        rotary: None = None,
        cache: DenseCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend as ``MultiHeadAttention`` does; ``mask`` is (B, 1, 1, S)."""
        kept = None
        if cache is not None:
            memory = (cache.keys, cache.values) if cache.length else ()
            kept = [tensor[:, :, : cache.length] for tensor in memory]
        real = None if mask is None else mask[:, 0, 0]
        output, weights = self.attend(x, causal=causal, real=real, kept=kept)
        if cache is not None and kept is not None:
            cache.reset()
            cache.append(*kept)
        return (output, weights) if return_weights else output

    def new_cache(self, batch_size: int, max_length: int) -> DenseCache:
        """Return an empty cache, like that of a ``MultiHeadAttention``."""
        shape = batch_size, self.num_kv_heads, max_length, self.head_dim
        return DenseCache(torch.zeros(shape), torch.zeros(shape))


def with_steps(model: GPT, steps: Steps) -> GPT:
    """Return a copy of a model whose attention takes other steps.

    Args:
        model: A GPT with learned, sinusoidal or no positions.
        steps: The steps of each of its layers; ``Steps()`` are the correct ones.

    Raises:
        TypeError: If a layer is neither ``MultiHeadAttention`` nor one with steps.
        ValueError: If its layers do something that the steps cannot: rotate queries and
            keys, add a bias to the scores, normalize queries and keys, use a window, or
            attend otherwise than with softmax.
    """
    config = model.config
    if config.attention != SOFTMAX:
        raise ValueError(
            f"attention={config.attention!r} has no counterpart in the steps"
        )
    if config.positions in ("rotary", "alibi") or config.qk_norm:
        raise ValueError(
            f"positions={config.positions!r} and qk_norm={config.qk_norm} have no "
            "counterpart in the steps"
        )
    if any(config.window_of(layer) for layer in range(config.num_layers)):
        raise ValueError(f"windows={config.windows} have no counterpart in the steps")
    model = copy.deepcopy(model)
    for block in model.blocks:
        before = block.attention
        if not isinstance(before, MultiHeadAttention | ExchangeableAttention):
            raise TypeError(f"{type(before).__name__} does not attend in these steps")
        layer = ExchangeableAttention(
            d_model=config.d_model,
            num_heads=before.num_heads,
            num_kv_heads=before.num_kv_heads,
            dropout=config.dropout,
            bias=config.bias,
            steps=steps,
        )
        weights = {
            name.replace("_proj", ""): weight
            for name, weight in before.state_dict().items()
        }
        layer.to(next(before.parameters())).load_state_dict(weights)
        block.register_module("attention", layer.train(before.training))
    return model


def exhibit_layer(steps: Steps) -> ExchangeableAttention:
    """Return a small layer made of these steps, with grouped heads and dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = ExchangeableAttention(
            d_model=20, num_heads=4, num_kv_heads=2, dropout=0.1, steps=steps
        )
    for parameter in layer.parameters():
        # Larger than usual, so that scores are not all near 0.
        parameter.data.mul_(3)
    return layer


def kill_matrix(exhibits: Iterable[Exhibit]) -> dict[str, dict[str, bool]]:
    """Return for each exhibit which checks catch it."""
    caught: dict[str, dict[str, bool]] = {}
    for exhibit in exhibits:
        layer = exhibit_layer(exhibit.steps)
        parts = {"q": layer.q, "k": layer.k, "v": layer.v, "o": layer.o}
        like = Reference(**parts, num_heads=4, num_kv_heads=2)
        verdicts = run_checks(layer, call=_call, like=like, pieces=_read)
        caught[exhibit.name] = {v.check: v.passed is False for v in verdicts}
    return caught


def _call(
    layer: ExchangeableAttention, x: Tensor, *, causal: bool, real: Tensor | None = None
) -> Tensor:
    mask = None if real is None else real[:, None, None]
    return layer(x, mask=mask, causal=causal)


def _read(layer: ExchangeableAttention, parts: list[Tensor]) -> Tensor:
    return layer.read(parts)


# --8<-- [start:alone]
def alone(matrix: Mapping[str, Mapping[str, bool]]) -> dict[str, list[str]]:
    """Return for each check the exhibits that no other check catches."""
    exhibits: dict[str, list[str]] = {name: [] for name in CHECKS}
    for exhibit, row in matrix.items():
        catching = [name for name, caught in row.items() if caught]
        if len(catching) == 1:
            exhibits[catching[0]].append(exhibit)
    return exhibits


def redundant(matrix: Mapping[str, Mapping[str, bool]]) -> list[tuple[str, str]]:
    """Return pairs of checks in which the second catches everything the first does."""
    sets = {
        name: {exhibit for exhibit, row in matrix.items() if row[name]}
        for name in CHECKS
    }
    return [
        (first, second)
        for first in sets
        for second in sets
        if first != second and sets[first] <= sets[second]
    ]


# --8<-- [end:alone]
