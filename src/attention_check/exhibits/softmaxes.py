"""Exhibits: bugs on the way from scores to weights, most of them in applying a mask."""

from typing import Any

import torch
from torch import Tensor

from attention_check.exhibits.exhibit import RIGHT, exhibit, issue, pull


def _filled(scores: Tensor, mask: Tensor | None, value: float) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, value)


@exhibit(
    "weigh",
    pull("huggingface/transformers", 38094, "2025, merged"),
    issue("rasbt/LLMs-from-scratch", 1061, "2026, closed"),
    pull("rasbt/LLMs-from-scratch", 1062, "2026, merged"),
    related=(issue("pytorch/examples", 649, "2019, closed"),),
)
# --8<-- [start:inverted_mask]
def inverted_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The mask is inverted: a query attends to exactly what it should ignore."""
    return RIGHT.weigh(scores, None if mask is None else ~mask)


# --8<-- [end:inverted_mask]


@exhibit(
    "weigh",
    pull("huggingface/pytorch-image-models", 2236, "2024, merged"),
    issue("lucidrains/memory-compressed-attention", 2, "2022, closed"),
)
# --8<-- [start:mask_after_softmax]
def mask_after_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The mask comes after the softmax, whose sums include the forbidden keys."""
    weights = scores.softmax(dim=-1)
    return weights if mask is None else weights * mask


# --8<-- [end:mask_after_softmax]


@exhibit("weigh")
# --8<-- [start:scores_times_mask]
def scores_times_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Forbidden scores are multiplied by 0, but a score of 0 still has a weight."""
    return (scores if mask is None else scores * mask).softmax(dim=-1)


# --8<-- [end:scores_times_mask]


@exhibit(
    "weigh",
    pull("awslabs/gluonts", 1401, "2021, merged"),
    issue("hyunwoongko/transformer", 10, "2022, closed"),
    issue("Shujun-He/RibonanzaNet", 5, "2025, open"),
)
# --8<-- [start:tiny_fill]
def tiny_fill(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Forbidden scores are filled with 1e-9, nearly 0, where -1e9 was meant."""
    return _filled(scores, mask, 1e-9).softmax(dim=-1)


# --8<-- [end:tiny_fill]


@exhibit("weigh")
# --8<-- [start:minus_five]
def minus_five(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Forbidden scores are filled with -5, which is small but not minus infinity."""
    return _filled(scores, mask, -5.0).softmax(dim=-1)


# --8<-- [end:minus_five]


@exhibit(
    "weigh",
    issue("huggingface/transformers", 17121, "2022, closed"),
    related=(issue("karpathy/minGPT", 75, "2022, closed"),),
    reach="scores below -10,000",
)
# --8<-- [start:large_but_finite]
def large_but_finite(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Forbidden scores are filled with -10000, and allowed ones can fall below that."""
    return _filled(scores, mask, -1e4).softmax(dim=-1)


# --8<-- [end:large_but_finite]


@exhibit(
    "weigh",
    issue("NVIDIA/apex", 1052, "2021, closed"),
    issue("facebookresearch/fairseq", 3575, "2021, open"),
    reach="half precision",
)
# --8<-- [start:beyond_half]
def beyond_half(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Forbidden scores are filled with -1e9, which half precision does not hold."""
    return _filled(scores, mask, -1e9).softmax(dim=-1)


# --8<-- [end:beyond_half]


@exhibit(
    "weigh",
    related=(
        issue("pytorch/pytorch", 21518, "2019, open"),
        pull("harvard-edge/cs249r_book", 1785, "2026, merged"),
    ),
)
# --8<-- [start:added_ones]
def added_ones(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A mask of ones and zeros is added, so forbidden keys only lose a factor e."""
    return (scores if mask is None else scores + mask.to(scores)).softmax(dim=-1)


# --8<-- [end:added_ones]


@exhibit(
    "weigh",
    issue("huggingface/transformers", 31673, "2024, closed"),
    pull("huggingface/transformers", 31674, "2024, merged"),
)
# --8<-- [start:mask_multiplied_away]
def mask_multiplied_away(scores: Tensor, mask: Tensor | None) -> Tensor:
    """An additive mask is multiplied by a window of zeros, which forbid nothing."""
    if mask is None:
        return scores.softmax(dim=-1)
    added = torch.zeros_like(scores).masked_fill(~mask, torch.finfo(scores.dtype).min)
    window = torch.ones_like(scores).tril(diagonal=-4)
    return (scores + added * window).softmax(dim=-1)


# --8<-- [end:mask_multiplied_away]


@exhibit(
    "weigh",
    issue("FudanNLP/fastNLP", 254, "2019, closed"),
    issue("nerminnuraydogan/vision-transformer", 1, "2025, open"),
)
# --8<-- [start:softmax_over_queries]
def softmax_over_queries(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the queries: columns sum to one, and rows do not."""
    return _filled(scores, mask, float("-inf")).softmax(dim=-2)


# --8<-- [end:softmax_over_queries]


@exhibit("weigh", issue("PetrochukM/PyTorch-NLP", 2, "2018, closed"))
# --8<-- [start:softmax_over_batch]
def softmax_over_batch(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax runs over the first axis: the sequences of a batch share weights."""
    weights = scores.softmax(dim=0)
    return weights if mask is None else weights * mask


# --8<-- [end:softmax_over_batch]


@exhibit("weigh")
# --8<-- [start:softmax_twice]
def softmax_twice(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax is taken twice, so that weights are nearly even."""
    return RIGHT.weigh(RIGHT.weigh(scores, mask), mask)


# --8<-- [end:softmax_twice]


@exhibit("weigh", issue("zyy-2001/DisKT", 6, "2026, closed"))
# --8<-- [start:unmasked_second_softmax]
def unmasked_second_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax is taken twice, the second time without the mask."""
    return RIGHT.weigh(scores, mask).softmax(dim=-1)


# --8<-- [end:unmasked_second_softmax]


@exhibit(
    "weigh",
    pull("mila-iqia/blocks", 727, "2015, merged"),
    issue("pyg-team/pytorch_geometric", 53, "2018, closed"),
    pull("pytorch/executorch", 18407, "2026, merged"),
    reach="scores above 700, and 88 in single precision",
)
# --8<-- [start:no_maximum_taken]
def no_maximum_taken(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Exponentials are taken without subtracting the maximum, so they overflow."""
    exps = scores.exp() if mask is None else scores.exp() * mask
    return exps / exps.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(exps.dtype).tiny)


# --8<-- [end:no_maximum_taken]


@exhibit(
    "weigh",
    issue("pytorch/pytorch", 41508, "2020, open"),
    reach="queries that may attend to nothing",
)
# --8<-- [start:nan_in_empty_rows]
def nan_in_empty_rows(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A query that may attend to nothing gets NaN."""
    return _filled(scores, mask, float("-inf")).softmax(dim=-1)


# --8<-- [end:nan_in_empty_rows]


@exhibit(
    "weigh",
    related=(pull("pytorch/pytorch", 42323, "2020, closed"),),
    reach="queries that may attend to nothing",
)
# --8<-- [start:nan_replaced]
def nan_replaced(scores: Tensor, mask: Tensor | None) -> Tensor:
    """NaN is replaced after the softmax, but the gradient is still NaN."""
    if mask is not None:
        scores = scores + torch.where(mask, 0.0, float("-inf")).to(scores)
    return scores.softmax(dim=-1).nan_to_num(0.0)


# --8<-- [end:nan_replaced]


# --8<-- [start:backward]
class _MaskedForwardOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return RIGHT.weigh(scores, mask)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (scores,), (gradient,) = ctx.saved_tensors, gradients
        weights = scores.softmax(dim=-1)  # computed again, without the mask
        pull = (weights * gradient).sum(dim=-1, keepdim=True)
        return weights * (gradient - pull), None


# --8<-- [end:backward]


@exhibit(
    "weigh",
    issue("Dao-AILab/flash-attention", 2424, "2026, open"),
    related=(
        issue("triton-lang/triton", 4541, "2024, open"),
        issue("triton-lang/triton", 5660, "2025, open"),
        pull("xlite-dev/ffpa-attn", 300, "2026, merged"),
    ),
)
def backward_without_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The output is right; the backward pass, written by hand, forgets the mask."""
    if mask is None:
        return scores.softmax(dim=-1)
    return _MaskedForwardOnly.apply(scores, mask)
