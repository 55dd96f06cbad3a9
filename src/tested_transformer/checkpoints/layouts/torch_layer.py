"""Convert weights to and from PyTorch's ``nn.MultiheadAttention``.

Both modules compute the same and name their parts differently. Only this module knows
both sets of names.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn

from tested_transformer.inspection import is_plain
from tested_transformer.multihead import MultiHeadAttention, attend_with_softmax

__all__ = ["from_torch", "to_torch"]

_Layer = TypeVar("_Layer", bound=nn.Module)


# --8<-- [start:from_torch]
def from_torch(
    module: nn.MultiheadAttention, *, fused: bool = True
) -> MultiHeadAttention:
    """Return the ``MultiHeadAttention`` that computes what ``module`` computes.

    The weights are copied. Dropout, dtype, device and training mode are kept. Input
    and output are ``(B, T, D)`` whatever ``module.batch_first`` says.

    Args:
        module: PyTorch's layer.
        fused: Whether the new layer uses PyTorch's fused kernels.

    Raises:
        ValueError: If this library's layer cannot do the same: ``module`` adds a
            learned or an empty key, or its keys and values differ in width.
    """
    if module.bias_k is not None or module.bias_v is not None:
        raise ValueError("add_bias_kv=True has no counterpart here")
    if module.add_zero_attn:
        raise ValueError("add_zero_attn=True has no counterpart here")
    if module.kdim != module.vdim:
        raise ValueError(
            f"kdim={module.kdim} and vdim={module.vdim} must be equal: "
            "keys and values come from one context"
        )
    if module.in_proj_weight is not None:
        q, k, v = module.in_proj_weight.chunk(3)
    else:
        q, k, v = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    weights = {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v}
    weights["o_proj.weight"] = module.out_proj.weight
    if module.in_proj_bias is not None:
        q, k, v = module.in_proj_bias.chunk(3)
        weights |= {"q_proj.bias": q, "k_proj.bias": k, "v_proj.bias": v}
        weights["o_proj.bias"] = module.out_proj.bias
    ours = MultiHeadAttention(
        d_model=module.embed_dim,
        num_heads=module.num_heads,
        d_context=module.kdim,
        dropout=module.dropout,
        bias=module.in_proj_bias is not None,
        fused=fused,
        device="meta",
    )
    return _with_weights(ours, weights, like=module)


# --8<-- [end:from_torch]


# --8<-- [start:to_torch]
def to_torch(module: MultiHeadAttention) -> nn.MultiheadAttention:
    """Return the ``nn.MultiheadAttention`` that computes what ``module`` computes.

    The weights are copied. Dropout, dtype, device and training mode are kept, and
    ``batch_first`` is ``True``.

    Raises:
        TypeError: If another module than an ``nn.Linear`` took a projection's place.
        ValueError: If ``module`` has another core than softmax, shares keys among
            heads, normalizes queries and keys, or its heads together are not as wide as
            ``d_model``.
    """
    _validate_width(module)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        if not is_plain(proj := getattr(module, name), nn.Linear):
            raise TypeError(
                f"{name} must be an nn.Linear without hooks, whose weights are copied; "
                f"it is a {type(proj).__name__}: merge an adapter first"
            )
    if module.num_kv_heads != module.num_heads:
        raise ValueError(
            f"num_kv_heads={module.num_kv_heads} must equal "
            f"num_heads={module.num_heads}: PyTorch's heads do not share keys"
        )
    if module.core is not attend_with_softmax:
        raise ValueError("core must be Softmax(): PyTorch's layer has no other")
    if module.qk_norm:
        raise ValueError("qk_norm=True has no counterpart in nn.MultiheadAttention")
    inputs = [module.q_proj, module.k_proj, module.v_proj]
    d_model, d_context = module.d_model, module.d_context
    bias = module.q_proj.bias is not None
    weights = {"out_proj.weight": module.o_proj.weight}
    if d_context == d_model:
        weights["in_proj_weight"] = torch.cat([proj.weight for proj in inputs])
    else:
        names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
        weights |= dict(zip(names, (proj.weight for proj in inputs), strict=True))
    if bias:
        weights["in_proj_bias"] = torch.cat([proj.bias for proj in inputs])
        weights["out_proj.bias"] = module.o_proj.bias
    theirs = nn.MultiheadAttention(
        d_model,
        module.num_heads,
        dropout=module.dropout,
        bias=bias,
        kdim=d_context,
        vdim=d_context,
        batch_first=True,
        device="meta",
    )
    return _with_weights(theirs, weights, like=module)


# --8<-- [end:to_torch]


def _validate_width(module: MultiHeadAttention) -> None:
    d_model, width = module.d_model, module.num_heads * module.head_dim
    if width != d_model:
        raise ValueError(
            f"num_heads={module.num_heads} of head_dim={module.head_dim} must be "
            f"d_model={d_model} wide in nn.MultiheadAttention; they are {width}"
        )


def _with_weights(
    layer: _Layer, weights: dict[str, Tensor], *, like: nn.Module
) -> _Layer:
    """Return the layer with these weights, their dtype and device, and a given mode.

    The layer comes from the meta device, where making it drew no random numbers.
    """
    (some, *_) = weights.values()
    layer.to(some.dtype).to_empty(device=some.device).load_state_dict(weights)
    return layer.train(like.training)
