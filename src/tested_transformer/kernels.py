"""The fused form of attention: PyTorch's kernels, and what they need.

``fused_attention`` returns what ``attention_with_weights`` does. The kernels differ in
which masks and types they accept and in what they return for a row with nothing to
attend to; that is settled here.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tested_transformer.attention import and_causal, drop_keys, repeat_heads
from tested_transformer.checks import validate_attention
from tested_transformer.inspection import is_known, is_readable

__all__ = ["fused_attention"]

# From this many queries on, a CPU trains faster without negligible keys.
_LONG = 128


# --8<-- [start:fused]
def fused_attention(
    q: Float[Tensor, "*queries T d_k"],
    k: Float[Tensor, "*keys S d_k"],
    v: Float[Tensor, "*keys S d_v"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "*queries T d_v"]:
    """Return the output of ``attention_with_weights``, without the weights.

    PyTorch's fused kernels never write the (T, S) table of weights. That saves time,
    and memory too unless a mask of that shape is needed. Arguments and errors are those
    of ``attention_with_weights``. Dropout picks different weights than it does there,
    and only first derivatives are available.

    Source: Dao et al., 2022, "FlashAttention", section 3.
    """
    validate_attention(q, k, v, mask, window, score_bias, dropout_p, causal)
    if window is not None:
        k, v, mask, score_bias = _keep_keys_in_reach(q, k, v, mask, score_bias, window)
        causal, window = True, _window_within(window, k)
    if is_known(q.shape[-2] == 1):
        causal = False  # a single query is the last: it may see every key in reach
    # If PyTorch makes the causal mask itself, it can choose its fastest kernels. But it
    # aligns the mask top-left, which agrees with ours only if T = S, and it multiplies
    # the mask by the scale, so a negative scale would turn -inf into inf.
    kernels_own = causal and mask is score_bias is window is None
    kernels_own = kernels_own and (scale is None or scale > 0)
    kernels_own = kernels_own and is_known(q.shape[-2] == k.shape[-2])
    options = {"dropout_p": dropout_p, "is_causal": kernels_own, "scale": scale}
    # With at least as many keys as queries, a causal mask leaves every query a key.
    full_rows = mask is None and is_known(q.shape[-2] <= k.shape[-2])
    full_rows = full_rows and (score_bias is None or _forbids_nothing(score_bias))
    if causal and not kernels_own:
        mask = and_causal(mask, q, k, window)
    if score_bias is not None and mask is not None:
        score_bias = score_bias.masked_fill(~mask, float("-inf"))
    allowed = mask if score_bias is None else score_bias
    if allowed is None or full_rows:
        return _call_kernel(q, k, v, allowed, **options)
    # Kernels differ in what they return for a row with nothing to attend to. Let such a
    # row attend to everything, and set its output to zero afterwards.
    forbidden = ~allowed if score_bias is None else allowed.isneginf()
    empty = forbidden.all(dim=-1, keepdim=True)
    allowed = allowed | empty if score_bias is None else allowed.masked_fill(empty, 0.0)
    return _call_kernel(q, k, v, allowed, **options).masked_fill(empty, 0.0)


# --8<-- [end:fused]


def _forbids_nothing(score_bias: Tensor) -> bool:
    """Whether a bias is known to hold no -inf; a GPU would have to be waited for."""
    looking = score_bias.device.type == "cpu" and is_readable(score_bias)
    numbers = score_bias.detach()
    return looking and numbers.numel() > 0 and numbers.amin().item() > -math.inf


def _keep_keys_in_reach(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    score_bias: Tensor | None,
    window: int,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Drop the keys that lie too far back for the window of the first query."""
    if torch.compiler.is_exporting() or q.shape[-2] == k.shape[-2]:
        return k, v, mask, score_bias
    start = max(k.shape[-2] - q.shape[-2] - window + 1, 0)
    k, v = k[..., start:, :], v[..., start:, :]
    return k, v, drop_keys(mask, start), drop_keys(score_bias, start)


def _window_within(window: int, k: Tensor) -> int | None:
    """Return the window, or None if it spans all keys and so is just causal."""
    return None if is_known(window >= k.shape[-2]) else window


def _call_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
) -> Tensor:
    """Call PyTorch's kernel with what it needs.

    A mask that is added is converted to the type of the queries, because kernels differ
    in which other types they accept.

    Under autocast on a CPU the kernel runs in float32, because in bfloat16 it loses
    more time than autocast saves in the matrix products around it.
    """
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            output = _call_kernel(q.float(), k.float(), v.float(), mask, **options)
        return output.to(torch.get_autocast_dtype("cpu"))
    d_k, d_v = q.shape[-1], v.shape[-1]
    if d_k != d_v and is_known(q.shape[-2] > 1):
        # The fastest kernels want one width; for a single query, copies cost more.
        options["scale"] = d_k**-0.5 if options["scale"] is None else options["scale"]
        q, k, v = (F.pad(x, (0, max(d_k, d_v) - x.shape[-1])) for x in (q, k, v))
        return _call_kernel(q, k, v, mask, **options)[..., :d_v]
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
        if _gradients_are_slow(q, k, v):
            mask = _without_negligible_keys(mask, q, k, options["scale"])
        transformed = any(map(is_functorch_wrapped_tensor, (q, k, v, mask)))
        if transformed and not torch.compiler.is_compiling():
            # A transform of torch.func hides from PyTorch that a bias is trained, which
            # its fused kernels cannot do.
            with sdpa_kernel(SDPBackend.MATH):
                return _call_with_shared_keys(q, k, v, mask, **options)
    return _call_with_shared_keys(q, k, v, mask, **options)


def _call_with_shared_keys(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
) -> Tensor:
    """Call PyTorch's kernel, where several query heads may share a head of keys."""
    if k.shape[:-2] == q.shape[:-2]:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    num_kv_heads = k.shape[-3]
    if is_known(q.shape[-2] == 1):
        # Lay the queries of a group side by side, as if they were one sequence, so that
        # each key is read once for all of them. A mask per head is rearranged likewise.
        q = q.unflatten(-3, (num_kv_heads, -1)).squeeze(-2)
        if mask is not None and mask.ndim > 2 and mask.shape[-3] != 1:
            mask = mask.unflatten(-3, (num_kv_heads, -1)).squeeze(-2)
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
        return output.flatten(-3, -2).unsqueeze(-2)
    # On a GPU the kernel that accepts a mask does not support shared keys.
    if q.device.type == "cpu" or (q.is_cuda and mask is None):
        options["enable_gqa"] = True
    else:
        k, v = repeat_heads(k, q), repeat_heads(v, q)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _gradients_are_slow(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether numbers near zero would slow a backward pass down, as on a CPU they do.

    In shorter sequences, and without gradients, looking for them costs more.
    """
    return (
        q.device.type == "cpu"
        and not torch.compiler.is_compiling()  # a program may run anywhere
        and q.shape[-2] >= _LONG
        and torch.is_grad_enabled()
        and (q.requires_grad or k.requires_grad or v.requires_grad)
    )


def _without_negligible_keys(
    added: Tensor, q: Tensor, k: Tensor, scale: float | None
) -> Tensor:
    """Forbid the keys that a bias such as ALiBi's makes negligible.

    A CPU is slow with numbers as small as their weights. No score exceeds the product
    of the longest query and the longest key, times the scale. So if a key's bias is
    lower than the highest of its row by twice that bound and -2 log(eps), its weight
    is less than eps squared of the highest one's, and dropping it changes no output by
    more than rounding does.
    """
    if added.requires_grad or 0 in (q.numel(), k.numel()):
        return added
    with torch.no_grad():
        factor = q.shape[-1] ** -0.5 if scale is None else abs(scale)
        beyond = factor * q.norm(dim=-1).amax() * k.norm(dim=-1).amax()
        eps = min(torch.finfo(q.dtype).eps, torch.finfo(torch.float32).eps)
        lowest = added.amax(dim=-1, keepdim=True) - 2 * (beyond - math.log(eps))
        return added.masked_fill(added < lowest, float("-inf"))
