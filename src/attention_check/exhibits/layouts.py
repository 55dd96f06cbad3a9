"""Exhibits: bugs of the scale, the layout of heads, the projections and dropout."""

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_check.exhibits.exhibit import RIGHT, exhibit, issue, pull
from attention_check.reference import Reference
from attention_check.steps import causal_mask

_Scale = float | Tensor
_Three = tuple[Tensor, Tensor, Tensor]


@exhibit(
    "score",
    issue("delzac/cntkx", 10, "2020, closed"),
    issue("ethen8181/machine-learning", 13, "2021, closed"),
)
# --8<-- [start:no_scale]
def no_scale(q: Tensor, k: Tensor, scale: _Scale) -> Tensor:
    """The scores are not divided by the root of the head's width."""
    return q @ k.mT


# --8<-- [end:no_scale]


@exhibit(
    "score",
    issue("lucidrains/vit-pytorch", 65, "2021, closed"),
    issue("aladdinpersson/Machine-Learning-Collection", 65, "2021, open"),
    pull("karpathy/ng-video-lecture", 6, "2023, merged"),
)
# --8<-- [start:scaled_by_width]
def scaled_by_width(q: Tensor, k: Tensor, scale: _Scale) -> Tensor:
    """The scores are divided by the root of the model's width, not of the head's."""
    d_model = q.shape[1] * q.shape[-1]
    return q @ k.mT * d_model**-0.5


# --8<-- [end:scaled_by_width]


@exhibit("score", issue("esceptico/perceiver-io", 9, "2021, closed"))
# --8<-- [start:scale_upside_down]
def scale_upside_down(q: Tensor, k: Tensor, scale: _Scale) -> Tensor:
    """The scores are multiplied by the root of the head's width."""
    return q @ k.mT / scale


# --8<-- [end:scale_upside_down]


@exhibit("split", issue("reczoo/FuxiCTR", 30, "2022, closed"))
# --8<-- [start:split_without_transpose]
def split_without_transpose(x: Tensor, num_heads: int) -> Tensor:
    """Features are split by a reshape without the transpose, so rows mix tokens."""
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


# --8<-- [end:split_without_transpose]


@exhibit("merge", pull("jsbaan/transformer-from-scratch", 6, "2026, merged"))
# --8<-- [start:merge_without_transpose]
def merge_without_transpose(heads: Tensor) -> Tensor:
    """Heads are merged by a reshape without the transpose, so rows mix tokens."""
    return heads.reshape(heads.shape[0], heads.shape[2], -1)


# --8<-- [end:merge_without_transpose]


@exhibit(
    "share",
    pull("apple/axlearn", 842, "2024, merged"),
    pull("onnx/onnx", 7274, "2025, open"),
    pull("ekzhang/jax-js", 180, "2026, merged"),
    num_kv_heads=2,
)
# --8<-- [start:tiled_keys]
def tiled_keys(k: Tensor, v: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    """Shared keys are tiled, so that heads read those of another group."""
    return k.repeat(1, copies, 1, 1), v.repeat(1, copies, 1, 1)


# --8<-- [end:tiled_keys]


@exhibit("attend", issue("aipixel/AEMatter", 3, "2023, closed"))
# --8<-- [start:attention_across_batch]
def attention_across_batch(
    layer: Reference, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *at: Tensor
) -> tuple[Tensor, None]:
    """Batch and time are exchanged: a token reads its position in other sequences."""
    q, k, v = (x.transpose(0, 2) for x in (q, k, v))
    across = None if mask is None else causal_mask(q.shape[2], q.shape[2])
    at = (torch.arange(q.shape[2]), torch.arange(k.shape[2]))
    return RIGHT.attend(layer, q, k, v, across, *at)[0].transpose(0, 2), None


# --8<-- [end:attention_across_batch]


@exhibit(
    "mix",
    issue("Kyubyong/transformer", 117, "2019, open"),
    issue("jwallbridge/translob", 4, "2021, open"),
)
# --8<-- [start:no_output_projection]
def no_output_projection(layer: Reference, heads: Tensor) -> Tensor:
    """The last projection is missing: nothing mixes the heads."""
    return heads


# --8<-- [end:no_output_projection]


@exhibit(
    "project",
    issue("yflyzhang/AnnotatedTransformer", 1, "2025, closed"),
    issue("fchollet/deep-learning-with-python-notebooks", 261, "2025, open"),
    issue("hmdolatabadi/denoising_diffusion", 1, "2020, closed"),
)
# --8<-- [start:keys_for_values]
def keys_for_values(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """One projection serves as keys and as values."""
    k = layer.project_k(context)
    return layer.project_q(x), k, k


# --8<-- [end:keys_for_values]


@exhibit(
    "project",
    issue("karpathy/nanochat", 844, "2026, open"),
    related=(pull("karpathy/nanochat", 845, "2026, open"),),
)
# --8<-- [start:block_summaries]
def block_summaries(layer: Reference, x: Tensor, context: Tensor) -> _Three:
    """Each block's mean is added to all its positions, and so bypasses the mask."""

    def summed(x: Tensor) -> Tensor:
        blocks = x.split(4, dim=1)
        return torch.cat([part + part.mean(1, keepdim=True) for part in blocks], dim=1)

    return RIGHT.project(layer, summed(x), summed(context))


# --8<-- [end:block_summaries]


@exhibit(
    "drop",
    pull("huggingface/pytorch-image-models", 1978, "2023, merged"),
    issue("pytorch/pytorch", 124464, "2024, closed"),
    issue("wenet-e2e/wenet", 2699, "2025, open"),
    dropout=0.2,
)
# --8<-- [start:dropout_while_evaluating]
def dropout_while_evaluating(weights: Tensor, p: float, training: bool) -> Tensor:
    """Weights are dropped while evaluating, too."""
    return F.dropout(weights, p)


# --8<-- [end:dropout_while_evaluating]
