"""Copy the weights of a GPT into a layout for reading one token at a time.

For each token, a small model spends most of its time on starting operations, a large
one on reading its weights from memory. So projections of the same input are packed into
one matrix, and each matrix is stored in the order in which it is read fastest.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.inspection import is_plain, numbers_of
from tested_transformer.layers import ACTIVATIONS, FeedForward, HeadNorm
from tested_transformer.multihead import MultiHeadAttention, attend_with_softmax

__all__ = [
    "Int8Matrix",
    "Matrix",
    "PackedLayer",
    "PackedWeights",
    "PackingError",
    "pack",
]

# Settings of a GPT that the packed layers do not support, except with their defaults.
_UNSUPPORTED = ("attention", "num_experts", "kept_heads", "windows", "rotary_layers")
# What a GPT without these settings is made of.
_KINDS = (
    *(GPT, DecoderBlock, MultiHeadAttention, FeedForward, nn.ModuleList),
    *(nn.Linear, nn.Embedding, nn.Dropout),
    *(nn.LayerNorm, nn.RMSNorm, HeadNorm, nn.Identity),
)

Rows = Callable[[Tensor], Tensor]


class PackingError(ValueError):
    """The packed layers do not support a part of the model."""


@dataclass(frozen=True)
class PackedLayer:
    """The packed weights of one decoder block."""

    attention_norm: Rows
    qkv: "Matrix"  # all queries, then all keys, then all values
    q_norm: Rows | None
    k_norm: Rows | None
    out: "Matrix"
    attention_out_norm: Rows | None
    feed_forward_norm: Rows
    up: "Matrix"  # the gate first, if there is one
    activation: Rows
    down: "Matrix"
    feed_forward_out_norm: Rows | None


@dataclass(frozen=True)
class PackedWeights:
    """The packed weights of a model."""

    tokens: Tensor
    positions: Tensor | None  # added to each token
    smear: Tensor | None
    layers: list[PackedLayer]
    norm: Rows
    head: "Matrix"

    def tensors(self) -> list[Tensor]:
        """Return the tensors that a step reads completely."""
        matrices = [
            matrix.weight
            for layer in self.layers
            for matrix in (layer.qkv, layer.out, layer.up, layer.down)
        ]
        return [*matrices, self.head.weight, self.tokens]


class Matrix:
    """A projection, with a copy of its weight as (in, out).

    Args:
        weight: (out, in), the weight of an ``nn.Linear``.
        bias: (out,) or ``None``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        # Store the longer of rows and columns contiguously, which is read fastest.
        lying = weight if weight.shape[0] < weight.shape[1] else weight.t()
        copied = torch.empty(lying.shape, dtype=weight.dtype, device=weight.device)
        copied.copy_(lying)
        self.weight = copied.t() if lying is weight else copied
        self.bias = None if bias is None else bias[None].clone()

    def project(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return rows times the matrix, plus its bias."""
        if self.bias is None:
            return torch.mm(x, self.weight, out=out)
        return torch.addmm(self.bias, x, self.weight, out=out)

    def add_to(self, x: Tensor, rows: Tensor) -> Tensor:
        """Add the projection of ``rows`` to ``x``, in place, and return it."""
        if self.bias is not None:
            x += self.bias
        return x.addmm_(rows, self.weight)


class Int8Matrix(Matrix):
    """A projection in integers from -127 to 127, with a scale for each output.

    The rows that it multiplies are rounded to bfloat16. The kernel reads their features
    in blocks, and would read past the end of an incomplete block.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        if weight.shape[1] % 32:
            raise PackingError(
                "weights='int8' needs widths divisible by 32; one projection has "
                f"{weight.shape[1]} input features"
            )
        weight = weight.float()  # in half precision 127 may round up to 128
        scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        # (out, in), as the kernel expects.
        self.weight = (weight / scale).round_().to(torch.int8)
        self.scale = scale.flatten().to(torch.bfloat16)
        self.bias = None if bias is None else bias[None].clone()

    def project(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return rows times the matrix, plus its bias."""
        rows = x.to(torch.bfloat16)
        wide = torch._weight_int8pack_mm(rows, self.weight, self.scale).to(x.dtype)
        if self.bias is not None:
            wide += self.bias
        return wide if out is None else out.copy_(wide)

    def add_to(self, x: Tensor, rows: Tensor) -> Tensor:
        """Add the projection of ``rows`` to ``x``, in place, and return it."""
        return x.add_(self.project(rows))


@torch.no_grad()
def pack(model: GPT, matrix: type[Matrix] = Matrix) -> PackedWeights:
    """Return copies of a model's weights, each projection in a ``Matrix`` of some kind.

    Raises:
        PackingError: If the packed layers do not support a part of the model.
    """
    _validate(model)
    tokens, positions = model.token_embedding.weight, None
    if model.config.positions == "learned":
        positions = model.position_embedding.weight.clone()
    elif model.config.positions == "sinusoidal":
        positions = model.position_table.to(numbers_of(model).dtype)
    return PackedWeights(
        tokens=tokens * tokens.new_tensor(model.config.embedding_scale),
        positions=positions,
        smear=model.smear.clone() if model.config.smear else None,
        layers=[_layer(block, matrix) for block in model.blocks],
        norm=_norm(model.norm) or _unchanged,
        head=matrix(model.head_weight),
    )


def _validate(model: GPT) -> None:
    """Refuse models that compute something other than their config and weights say."""
    for name in _UNSUPPORTED:
        value = getattr(model.config, name)
        if value != GPTConfig.__dataclass_fields__[name].default:
            raise PackingError(f"the decoder does not support {name}={value!r}")
    for name, module in model.named_modules():
        kind, where = type(module), name or "the model"
        if kind not in _KINDS:
            raise PackingError(f"the decoder does not know the {kind.__name__} {where}")
        if not is_plain(module, kind):
            raise PackingError(
                f"{where} has hooks, a forward or weights of its own kind, which the "
                "decoder would not run"
            )
        if kind is MultiHeadAttention and module.core is not attend_with_softmax:
            raise PackingError(f"{where} has another core than softmax")


def _layer(block: DecoderBlock, matrix: type[Matrix]) -> PackedLayer:
    attention, inner = block.attention, block.feed_forward
    assert isinstance(attention, MultiHeadAttention)  # _validate refuses others
    assert isinstance(inner, FeedForward)  # and experts
    wide, activation, scale = [inner.up], inner.activation, 1.0
    if inner.gate is not None:
        wide, activation = [inner.gate, inner.up], _gate(activation)
    elif activation is F.gelu:
        # With r = sqrt(2) and y = x / r, gelu(x) = x (1 + erf(x / r)) / 2 equals
        # (y + y erf(y)) / r. With 1 / r in the matrices, two operations remain.
        activation, scale = _rooted_gelu, 0.5**0.5
    elif activation is ACTIVATIONS["relu2"]:
        activation = _relu_squared
    qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
    return PackedLayer(
        attention_norm=_norm(block.attention_norm) or _unchanged,
        qkv=_stack(matrix, qkv),
        q_norm=_norm(attention.q_norm),
        k_norm=_norm(attention.k_norm),
        out=matrix(attention.o_proj.weight, attention.o_proj.bias),
        attention_out_norm=_norm(block.attention_out_norm),
        feed_forward_norm=_norm(block.feed_forward_norm) or _unchanged,
        up=_stack(matrix, wide, scale),
        activation=activation,
        down=matrix(inner.down.weight * scale, inner.down.bias),
        feed_forward_out_norm=_norm(block.feed_forward_out_norm),
    )


def _stack(matrix: type[Matrix], layers: list[nn.Linear], scale: float = 1.0) -> Matrix:
    """Return one scaled matrix for several projections of the same input."""
    weight = torch.cat([layer.weight for layer in layers]).mul_(scale)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return matrix(weight, torch.cat(biases).mul_(scale) if biases else None)


def _gate(activation: Callable[..., Tensor]) -> Rows:
    def gated(wide: Tensor) -> Tensor:
        return activation(*wide.chunk(2, dim=-1))

    return gated


def _rooted_gelu(y: Tensor) -> Tensor:
    return torch.addcmul(y, y, y.erf())


def _relu_squared(x: Tensor) -> Tensor:
    """Return squared ReLU in place, without the gradient of the model's function."""
    return x.relu().square_()


def _norm(module: nn.Module | None) -> Rows | None:
    if not isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return None
    eps, copies = module.eps, [x.clone() for x in module.parameters()]
    assert eps is not None  # make_norm sets it
    if isinstance(module, nn.RMSNorm):
        [gain] = copies
        return _rms_norm(gain, eps)
    return lambda x: torch.layer_norm(x, module.normalized_shape, *copies, eps=eps)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _rms_norm(gain: Tensor, eps: float) -> Rows:
    """Return an RMS norm: each row divided by its root mean square, times a gain.

    The gain includes the square root of the width, and ``hypot`` adds ``eps`` under the
    root, so that it takes three operations instead of six.
    """
    exact = torch.promote_types(gain.dtype, torch.float32)
    floor = torch.tensor((len(gain) * eps) ** 0.5, dtype=exact, device=gain.device)
    gain = gain * len(gain) ** 0.5

    def norm(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=exact)
        return (x / torch.hypot(length, floor) * gain).to(x.dtype)

    return norm
