"""The weights of a GPT, copied and laid out for reading one token at a time.

A small model spends most of a token's time not on numbers but on starting operations;
a large one on reading its weights from memory. So projections of the same input are one
matrix, and each matrix is stored so that its product with a row is read fastest.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import chain
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.layers import ACTIVATIONS, FeedForward
from tested_transformer.multihead import MultiHeadAttention

__all__ = [
    "Int8Matrix",
    "Matrix",
    "PackedLayer",
    "PackedWeights",
    "PackingError",
    "pack",
    "packed",
]

# What the packed layers can do. A setting that came later keeps its default, or the
# model is not packed: better slow than wrong.
_KNOWN = {
    *("vocab_size", "max_seq_len", "d_model", "num_heads", "num_layers"),
    *("num_kv_heads", "d_ff", "positions", "activation", "norm", "bias", "tie_head"),
    *("dropout", "experts_per_token", "qk_norm", "smear", "zero_init", "fused"),
    "rotary_base",
}
_KNOWN_MODULES = {
    *(GPT, DecoderBlock, MultiHeadAttention, FeedForward),
    *(nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.RMSNorm),
    *(nn.Dropout, nn.Identity),
}
_POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Rows = Callable[[Tensor], Tensor]


class PackingError(ValueError):
    """A model has parts that the packed layers do not know."""


@dataclass(frozen=True)
class PackedLayer:
    """One decoder block."""

    attention_norm: Rows
    qkv: "Matrix"  # all queries, then all keys, then all values
    out: "Matrix"
    feed_forward_norm: Rows
    up: "Matrix"  # the gate first, if there is one
    activation: Rows
    down: "Matrix"


@dataclass(frozen=True)
class PackedWeights:
    """All of a model."""

    tokens: Tensor
    positions: Tensor | None  # what is added to each token for its place
    smear: Tensor | None
    layers: list[PackedLayer]
    norm: Rows
    head: "Matrix"

    def tensors(self) -> list[Tensor]:
        """Return what a step reads from start to end."""
        matrices = [
            matrix.weight
            for layer in self.layers
            for matrix in (layer.qkv, layer.out, layer.up, layer.down)
        ]
        return [*matrices, self.head.weight, self.tokens]


class Matrix:
    """A projection, with a copy of its weight as (in, out).

    Args:
        weight: (out, in), as ``nn.Linear`` has it.
        bias: (out,) or ``None``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        # Its longer rows or columns lie in a row: they are read fastest.
        lying = weight if weight.shape[0] < weight.shape[1] else weight.t()
        copied = torch.empty(lying.shape, dtype=weight.dtype, device=weight.device)
        copied.copy_(lying)
        self.weight = copied.t() if lying is weight else copied
        self.bias = None if bias is None else bias[None].clone()

    def project(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the product of rows with it, plus its bias."""
        if self.bias is None:
            return torch.mm(x, self.weight, out=out)
        return torch.addmm(self.bias, x, self.weight, out=out)

    def add_to(self, x: Tensor, rows: Tensor) -> Tensor:
        """Add the projection of ``rows`` to ``x``, in place, and return it."""
        if self.bias is not None:
            x += self.bias
        return x.addmm_(rows, self.weight)


class Int8Matrix(Matrix):
    """A projection in whole numbers from -127 to 127, with a scale for each output.

    The rows that it multiplies are rounded to bfloat16. The kernel reads their features
    in blocks, and beyond the end if the last one is not full.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        if weight.shape[1] % 32:
            raise PackingError(
                "weights='int8' needs widths that 32 divides; one projection reads "
                f"{weight.shape[1]} features"
            )
        weight = weight.float()  # in half precision 127 may round up to 128
        scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        # (out, in), as the kernel wants it.
        self.weight = (weight / scale).round_().to(torch.int8)
        self.scale = scale.flatten().to(torch.bfloat16)
        self.bias = None if bias is None else bias[None].clone()

    def project(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the product of rows with it, plus its bias."""
        rows = x.to(torch.bfloat16)
        wide = torch._weight_int8pack_mm(rows, self.weight, self.scale).to(x.dtype)
        if self.bias is not None:
            wide += self.bias
        return wide if out is None else out.copy_(wide)

    def add_to(self, x: Tensor, rows: Tensor) -> Tensor:
        """Add the projection of ``rows`` to ``x``, in place, and return it."""
        return x.add_(self.project(rows))


_kept: WeakKeyDictionary[GPT, tuple[list[Tensor], object, PackedWeights]] = (
    WeakKeyDictionary()
)


def packed(model: GPT) -> PackedWeights:
    """Return a model's packed weights: those of the last call, if it did not change.

    They are kept as long as the model lives. Whether it changed is seen from its bits,
    not from a count of changes, which a write to ``.data`` does not raise.

    Raises:
        PackingError: If the model has parts that the packed layers do not know.
    """
    _check_known(model)
    settings = (model.config, [_epsilon(each) for each in model.modules()])
    prints = [
        each
        for tensor in chain(model.parameters(), model.buffers())
        for each in _fingerprint(tensor.detach())
    ]
    before = _kept.get(model)
    if before is not None and before[1] == settings and _equal(before[0], prints):
        return before[2]
    _kept.pop(model, None)  # before there are two
    made = pack(model)
    if not any(each.is_meta for each in prints):
        _kept[model] = ([each.clone() for each in prints], settings, made)
    return made


def _fingerprint(tensor: Tensor) -> list[Tensor]:
    """Return the bits of a small tensor, or their sums over rows and over columns.

    No change within one row or one column leaves all sums as they were, for they are
    exact; a change all over would have to cancel out in every row and every column.
    """
    bits = tensor.view(_INTEGERS[tensor.itemsize])
    if bits.ndim != 2 or bits.numel() < 2**14:
        return [bits]
    if bits.is_contiguous() and bits.shape[1] * bits.itemsize % 8 == 0:
        bits = bits.view(torch.int64)  # several numbers at once
    return [bits.sum(dim=0), bits.sum(dim=1)]


def _equal(before: list[Tensor], now: list[Tensor]) -> bool:
    def kind(tensor: Tensor) -> object:
        return tensor.device, tensor.dtype, tensor.shape

    same = len(before) == len(now) and all(
        kind(one) == kind(other) for one, other in zip(before, now, strict=True)
    )
    return same and all(map(torch.equal, before, now))


def _epsilon(module: nn.Module) -> float | None:
    return module.eps if isinstance(module, nn.LayerNorm | nn.RMSNorm) else None


def pack(model: GPT, matrix: "type[Matrix] | None" = None) -> PackedWeights:
    """Copy a model's weights, each projection into a ``Matrix`` or another kind of it.

    Raises:
        PackingError: If the model has parts that the packed layers do not know.
    """
    _check_known(model)
    matrix = matrix or Matrix
    weights = _Weights(model, matrix)
    made = PackedWeights(
        tokens=weights.take("token_embedding.weight").clone(),
        positions=_positions(model, weights),
        smear=weights.take("smear").clone() if model.config.smear else None,
        layers=[_layer(weights, i, block) for i, block in enumerate(model.blocks)],
        norm=weights.norm("norm", model.norm),
        head=matrix(model.head_weight.detach()),
    )
    weights.left.pop("head.weight", None)
    if weights.left:
        raise PackingError(f"no place for {', '.join(sorted(weights.left))}")
    return made


def _check_known(model: GPT) -> None:
    """Look for all that makes a model another than its config and its weights say."""
    if type(model) is not GPT:
        raise PackingError(f"{type(model).__name__} is not GPT itself")
    config = model.config
    for field in fields(GPTConfig):
        value = getattr(config, field.name)
        if field.name not in _KNOWN and value != field.default:
            raise PackingError(f"no way to decode with {field.name}={value!r}")
    if config.positions not in _POSITIONS:
        raise PackingError(f"no way to decode positions={config.positions!r}")
    if nn.modules.module._has_any_global_hook():
        raise PackingError("all modules have hooks, which packed layers do not run")
    for name, module in model.named_modules():
        if type(module) not in _KNOWN_MODULES:
            raise PackingError(f"no way to decode {name}: {type(module).__name__}")
        hooks = module._forward_hooks or module._forward_pre_hooks
        if hooks or "forward" in vars(module):
            raise PackingError(f"{name or 'the model'} has hooks of its own")
    for block in model.blocks:
        changed = (
            block.attention.qk_norm != config.qk_norm
            or block.feed_forward.activation is not ACTIVATIONS[config.activation]
        )
        if changed:
            raise PackingError("a block was changed after it was made")


class _Weights:
    """The parameters of a model, each to be taken once, so that none is forgotten."""

    def __init__(self, model: GPT, matrix: type[Matrix]) -> None:
        self.left = {name: p.detach() for name, p in model.named_parameters()}
        self.matrix = matrix

    def take(self, name: str) -> Tensor:
        if name not in self.left:
            raise PackingError(f"the model has no {name}")
        return self.left.pop(name)

    def stack(self, *names: str, times: float = 1.0) -> Matrix:
        """Make one matrix of projections of the same input, times a number."""
        weights = [self.take(f"{name}.weight") for name in names]
        weight = torch.cat(weights) if len(names) > 1 else weights[0]
        if f"{names[0]}.bias" not in self.left:
            return self.matrix(weight if times == 1.0 else weight * times)
        bias = torch.cat([self.take(f"{name}.bias") for name in names])
        if times == 1.0:
            return self.matrix(weight, bias)
        return self.matrix(weight * times, bias * times)

    def norm(self, name: str, module: nn.LayerNorm | nn.RMSNorm) -> Rows:
        weight, eps = self.take(f"{name}.weight").clone(), module.eps
        assert eps is not None  # make_norm sets it
        if isinstance(module, nn.RMSNorm):
            return _rms_norm(len(weight), eps, weight)
        bias = (
            self.take(f"{name}.bias").clone() if f"{name}.bias" in self.left else None
        )
        shape = weight.shape
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


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


def _layer(weights: _Weights, index: int, block: DecoderBlock) -> PackedLayer:
    name = f"blocks.{index}."
    projections = [f"{name}attention.{each}_proj" for each in "qkv"]
    up, activation, down = _feed_forward(weights, name, block.feed_forward)
    return PackedLayer(
        attention_norm=weights.norm(f"{name}attention_norm", block.attention_norm),
        qkv=weights.stack(*projections),
        out=weights.stack(f"{name}attention.o_proj"),
        feed_forward_norm=weights.norm(
            f"{name}feed_forward_norm", block.feed_forward_norm
        ),
        up=up,
        activation=activation,
        down=down,
    )


def _feed_forward(
    weights: _Weights, name: str, inner: nn.Module
) -> tuple[Matrix, Rows, Matrix]:
    """Stack the gate on the matrix beside it, and split up the GELU."""
    assert isinstance(inner, FeedForward)  # with experts, the model is not known
    up, down = f"{name}feed_forward.up", f"{name}feed_forward.down"
    if inner.gate is not None:
        gate = f"{name}feed_forward.gate"
        gated = _gate(inner.activation)
        return weights.stack(gate, up), gated, weights.stack(down)
    if inner.activation is F.gelu:
        # gelu(x) = x (1 + erf(x / r)) / 2 = (y + y erf(y)) / r with y = x / r and r the
        # root of 2: once 1 / r is in the matrices, two operations are left.
        up_matrix = weights.stack(up, times=0.5**0.5)
        bias = weights.left.pop(f"{down}.bias", None)
        scaled = weights.take(f"{down}.weight") * 0.5**0.5
        return up_matrix, _rooted_gelu, weights.matrix(scaled, bias)
    activation = inner.activation
    if activation is ACTIVATIONS["relu2"]:
        activation = _relu_squared
    return weights.stack(up), activation, weights.stack(down)


def _rooted_gelu(y: Tensor) -> Tensor:
    return torch.addcmul(y, y, y.erf())


def _relu_squared(x: Tensor) -> Tensor:
    """Square in place, without the gradient that the model's own function keeps."""
    positive = x.relu()
    return positive.mul_(positive)


def _gate(activation: Rows) -> Rows:
    def gated(wide: Tensor) -> Tensor:
        gate, up = wide.chunk(2, dim=-1)
        return activation(gate) * up

    return gated


def _positions(model: GPT, weights: _Weights) -> Tensor | None:
    if model.config.positions == "learned":
        return weights.take("position_embedding.weight").clone()
    if model.config.positions == "sinusoidal":
        return model.position_table.to(model.head_weight.dtype)
    return None
