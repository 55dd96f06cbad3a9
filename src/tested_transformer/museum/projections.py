"""Find the projections of somebody else's layer, to have an oracle with its weights."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from tested_transformer.museum.layer import ExchangeableAttention, Steps

__all__ = ["find_width", "oracles"]

# Names in public code for the four projections, and for three of them in one.
_SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("W_q", "W_k", "W_v"),
    ("w_q", "w_k", "w_v"),
    ("wq", "wk", "wv"),
    ("W_query", "W_key", "W_value"),
    ("to_q", "to_k", "to_v"),
    ("query", "key", "value"),
)
_STACKED = ("c_attn", "qkv", "qkv_proj", "in_proj", "to_qkv", "Wqkv", "query_key_value")
_LAST = (
    *("o_proj", "out_proj", "W_o", "w_o", "wo", "c_proj", "proj", "to_out", "out"),
    *("dense", "output"),
)
_HEADS = ("num_heads", "n_heads", "n_head", "heads", "nhead", "nheads", "h")


def find_width(module: nn.Module) -> int | None:
    """Give the width of the sequence that a layer takes, if it can be told."""
    embed_dim = getattr(module, "embed_dim", None)
    if isinstance(embed_dim, int):
        return embed_dim
    for each in module.modules():
        if isinstance(each, nn.Linear):
            return each.in_features
    return None


# --8<-- [start:oracles]
def oracles(
    module: nn.Module, num_heads: int | None, steps: Steps | None = None
) -> Iterator[ExchangeableAttention]:
    """Make layers that take given steps with the weights of ``module``.

    There are none if its projections or the number of its heads cannot be told, and
    several if its stacked projection could be cut in more than one way.

    Args:
        module: The layer of somebody else.
        num_heads: Its heads; read off its attributes by default.
        steps: What the new layers do; what is right, by default.
    """
    last = _last(module)
    if last is None and (inner := _wrapped(module)) is not None:
        yield from oracles(inner.train(module.training), num_heads, steps)
        return
    num_heads = _number_of_heads(module) if num_heads is None else num_heads
    if num_heads is None or last is None:
        return
    for inputs in _inputs(module, num_heads, last[0].shape[1]):
        (q, _), (k, _), _ = inputs
        d_model = q.shape[1]
        head_dim, left = divmod(q.shape[0], num_heads)
        if left or q.shape[0] != d_model or k.shape[0] % head_dim:
            continue
        layer = ExchangeableAttention(
            d_model=d_model,
            num_heads=num_heads,
            num_kv_heads=k.shape[0] // head_dim,
            steps=steps,
        ).to(q)
        targets = layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj
        with torch.no_grad():
            for target, (weight, bias) in zip(targets, [*inputs, last], strict=True):
                target.weight.copy_(weight)
                target.bias.zero_() if bias is None else target.bias.copy_(bias)
        yield layer.train(module.training)


# --8<-- [end:oracles]


_Projection = tuple[Tensor, Tensor | None]


def _wrapped(module: nn.Module) -> nn.Module | None:
    """Give the module that a module is a wrapper of, if it is nothing else."""
    inner = [each for each in module.children() if any(True for _ in each.parameters())]
    own = any(True for _ in module.parameters(recurse=False))
    return inner[0] if len(inner) == 1 and not own else None


def _inputs(
    module: nn.Module, num_heads: int, d_model: int
) -> Iterator[Sequence[_Projection]]:
    """Give what could be the projections to queries, keys and values."""
    for names in _SEPARATE:
        found = [_projection(getattr(module, name, None)) for name in names]
        if all(found):
            yield [each for each in found if each]
    stacked = [_projection(getattr(module, name, None)) for name in _STACKED]
    weight = getattr(module, "in_proj_weight", None)
    if isinstance(weight, Tensor):
        stacked.append((weight, getattr(module, "in_proj_bias", None)))
    for each in stacked:
        if each and each[0].shape[0] >= d_model:
            yield from _cuts(*each, num_heads, d_model)


def _cuts(
    weight: Tensor, bias: Tensor | None, num_heads: int, d_model: int
) -> Iterator[Sequence[_Projection]]:
    """Cut a stacked projection: first into three, or first into heads."""
    d_kv, left = divmod(weight.shape[0] - d_model, 2)
    if left or not d_kv:
        return
    sizes = [d_model, d_kv, d_kv]
    biases = [None] * 3 if bias is None else bias.split(sizes)
    yield list(zip(weight.split(sizes), biases, strict=True))
    if d_kv == d_model and d_model % num_heads == 0:
        shape = (num_heads, 3, d_model // num_heads)
        weights = weight.unflatten(0, shape).unbind(1)
        biases = [None] * 3 if bias is None else bias.unflatten(0, shape).unbind(1)
        flat = [None if each is None else each.flatten() for each in biases]
        yield list(zip([w.flatten(0, 1) for w in weights], flat, strict=True))


def _last(module: nn.Module) -> _Projection | None:
    for name in _LAST:
        child = getattr(module, name, None)
        if isinstance(child, nn.Sequential) and len(child):
            child = child[0]
        found = _projection(child)
        if found:
            return found
    return None


def _projection(child: object) -> _Projection | None:
    if isinstance(child, nn.Linear):
        return child.weight, child.bias
    return None


def _number_of_heads(module: nn.Module) -> int | None:
    for name in _HEADS:
        value = getattr(module, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
