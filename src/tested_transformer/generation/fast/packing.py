"""The weights of a GPT, copied and laid out for reading one token at a time.

A small model spends most of a token's time not on numbers but on starting operations.
So what can be multiplied into a matrix once is not multiplied at every token, and each
matrix is stored transposed: the product of a row with it reads it from start to end.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.layers import FeedForward
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["PackedLayer", "PackedWeights", "PackingError", "pack"]

# What the packed layers can do. A setting that came later keeps its default, or the
# model is not packed: better slow than wrong.
_KNOWN = {
    *("vocab_size", "max_seq_len", "d_model", "num_heads", "num_layers"),
    *("num_kv_heads", "d_ff", "positions", "activation", "norm", "bias", "tie_head"),
    *("dropout", "experts_per_token", "qk_norm", "smear", "zero_init", "fused"),
    "rotary_base",
}
_POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")

Rows = Callable[[Tensor], Tensor]


class PackingError(ValueError):
    """A model has parts that the packed layers do not know."""


# --8<-- [start:layer]
@dataclass(frozen=True)
class PackedLayer:
    """One decoder block. Each matrix is (in, out), each bias (1, out) or ``None``."""

    attention_norm: Rows
    qkv: Tensor  # for each head of keys: the queries of its group, its key, its value
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    feed_forward_norm: Rows
    up: Tensor  # the gate first, if there is one
    up_bias: Tensor | None
    activation: Rows
    down: Tensor
    down_bias: Tensor | None


# --8<-- [end:layer]


@dataclass(frozen=True)
class PackedWeights:
    """All of a model."""

    tokens: Tensor
    positions: Tensor | None  # what is added to each token for its place
    smear: Tensor | None
    layers: list[PackedLayer]
    norm: Rows
    head: Tensor


def pack(model: GPT) -> PackedWeights:
    """Copy a model's weights.

    Raises:
        PackingError: If the model has parts that the packed layers do not know.
    """
    _check_known(model)
    weights = _Weights(model)
    packed = PackedWeights(
        tokens=weights.take("token_embedding.weight"),
        positions=_positions(model, weights),
        smear=weights.take("smear") if model.config.smear else None,
        layers=[_layer(weights, i, block) for i, block in enumerate(model.blocks)],
        norm=weights.norm("norm", model.norm),
        head=_transposed(model.head_weight.detach()),
    )
    weights.left.pop("head.weight", None)
    if weights.left:
        raise PackingError(f"no place for {', '.join(sorted(weights.left))}")
    return packed


def _rms_norm(width: int, eps: float, gain: Tensor) -> Rows:
    """Make an RMS norm: each row over its root mean square, times a gain.

    The square root of the width is multiplied into the gain, and a hypotenuse adds
    ``eps`` below the root: three operations where there were six.
    """
    exact = torch.promote_types(gain.dtype, torch.float32)
    floor = torch.tensor((width * eps) ** 0.5, dtype=exact, device=gain.device)
    gain = gain * width**0.5

    def norm(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=exact)
        return (x / torch.hypot(length, floor) * gain).to(x.dtype)

    return norm


def _check_known(model: GPT) -> None:
    if type(model) is not GPT:
        raise PackingError(f"{type(model).__name__} is not GPT itself")
    for field in fields(GPTConfig):
        value = getattr(model.config, field.name)
        if field.name not in _KNOWN and value != field.default:
            raise PackingError(f"no way to decode with {field.name}={value!r}")
    if model.config.positions not in _POSITIONS:
        raise PackingError(f"no way to decode positions={model.config.positions!r}")


class _Weights:
    """The parameters of a model, each to be taken once, so that none is forgotten."""

    def __init__(self, model: GPT) -> None:
        self.left = {name: p.detach() for name, p in model.named_parameters()}

    def take(self, name: str) -> Tensor:
        if name not in self.left:
            raise PackingError(f"the model has no {name}")
        return self.left.pop(name).clone()

    def projections(self, *names: str) -> tuple[Tensor, Tensor | None]:
        """Stack projections: their matrices, (out, in), and their biases, (out, 1)."""
        matrices = [self.take(f"{name}.weight") for name in names]
        if f"{names[0]}.bias" not in self.left:
            return torch.cat(matrices), None
        biases = [self.take(f"{name}.bias") for name in names]
        return torch.cat(matrices), torch.cat(biases)[:, None]

    def norm(self, name: str, module: nn.LayerNorm | nn.RMSNorm) -> Rows:
        weight = self.take(f"{name}.weight")
        if isinstance(module, nn.RMSNorm):
            assert module.eps is not None  # make_norm sets it
            return _rms_norm(len(weight), module.eps, weight)
        bias = self.take(f"{name}.bias") if f"{name}.bias" in self.left else None
        return lambda x: torch.layer_norm(x, weight.shape, weight, bias, module.eps)


def _layer(weights: _Weights, index: int, block: DecoderBlock) -> PackedLayer:
    name, attention = f"blocks.{index}.", block.attention
    out, out_bias = weights.projections(f"{name}attention.o_proj")
    qkv, qkv_bias = _queries_keys_values(weights, name, attention)
    up, up_bias, activation, down, down_bias = _feed_forward(
        weights, name, block.feed_forward
    )
    return PackedLayer(
        attention_norm=weights.norm(f"{name}attention_norm", block.attention_norm),
        qkv=_transposed(qkv),
        qkv_bias=_row(qkv_bias),
        out=_transposed(out),
        out_bias=_row(out_bias),
        feed_forward_norm=weights.norm(
            f"{name}feed_forward_norm", block.feed_forward_norm
        ),
        up=_transposed(up),
        up_bias=_row(up_bias),
        activation=activation,
        down=_transposed(down),
        down_bias=_row(down_bias),
    )


# --8<-- [start:qkv]
def _queries_keys_values(
    weights: _Weights, name: str, attention: MultiHeadAttention
) -> tuple[Tensor, Tensor | None]:
    """Stack three projections, and multiply the scale of the scores into the first."""
    names = [f"{name}attention.{each}_proj" for each in "qkv"]
    groups, width = attention.num_kv_heads, attention.head_dim
    share = attention.num_heads // groups
    matrix, bias = weights.projections(*names)
    scale = matrix.new_ones(share + 2, 1, 1)  # neither of keys nor of values
    if not attention.qk_norm:  # which would undo it
        scale[:share] = width**-0.5

    def by_group(rows: Tensor) -> Tensor:
        sizes = [groups * share * width, groups * width, groups * width]
        parts = [rows.unflatten(0, (groups, -1)) for rows in rows.split(sizes)]
        heads = torch.cat(parts, dim=1).unflatten(1, (share + 2, width))
        return (heads * scale).flatten(0, 2)

    return by_group(matrix), None if bias is None else by_group(bias)


# --8<-- [end:qkv]


# --8<-- [start:feed-forward]
def _feed_forward(
    weights: _Weights, name: str, inner: nn.Module
) -> tuple[Tensor, Tensor | None, Rows, Tensor, Tensor | None]:
    """Stack the gate on the matrix beside it, and split up the GELU."""
    assert isinstance(inner, FeedForward)  # with experts, the model is not known
    activation, gated = inner.activation, inner.gate is not None
    first = ["gate", "up"] if gated else ["up"]
    up, up_bias = weights.projections(*(f"{name}feed_forward.{f}" for f in first))
    down, down_bias = weights.projections(f"{name}feed_forward.down")
    if gated:
        return up, up_bias, _gate(activation), down, down_bias
    if activation is F.gelu:
        # gelu(x) = x (1 + erf(x / r)) / 2 = (y + y erf(y)) / r with y = x / r and r the
        # root of 2: once r is in the matrices on both sides, two operations are left.
        up, down = up * 0.5**0.5, down * 0.5**0.5
        up_bias = None if up_bias is None else up_bias * 0.5**0.5
        return up, up_bias, _rooted_gelu, down, down_bias
    return up, up_bias, activation, down, down_bias


def _rooted_gelu(y: Tensor) -> Tensor:
    return torch.addcmul(y, y, y.erf())


# --8<-- [end:feed-forward]


def _gate(activation: Rows) -> Rows:
    def gated(wide: Tensor) -> Tensor:
        gate, up = wide.chunk(2, dim=-1)
        return activation(gate) * up

    return gated


def _positions(model: GPT, weights: _Weights) -> Tensor | None:
    if model.config.positions == "learned":
        return weights.take("position_embedding.weight")
    if model.config.positions == "sinusoidal":
        return model.position_table.to(model.head_weight.dtype)
    return None


def _transposed(rows: Tensor) -> Tensor:
    return rows.t().clone(memory_format=torch.contiguous_format)


def _row(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else _transposed(bias)
