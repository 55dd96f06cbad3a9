"""Exhibits: bugs of the mask itself, which lets tokens read the wrong tokens."""

import torch
from torch import Tensor

from attention_check.exhibits.exhibit import RIGHT, Publication, exhibit, issue, pull
from attention_check.reference import Reference

_Mask = Tensor | None


@exhibit(
    "allow",
    issue("huggingface/transformers", 48745, "2026, closed"),
    issue("khirotaka/SAnD", 6, "2020, closed"),
)
# --8<-- [start:no_causal_mask]
def no_causal_mask(layer: Reference, num_queries: int, num_keys: int) -> _Mask:
    """The causal mask is not applied."""
    return None


# --8<-- [end:no_causal_mask]


@exhibit("allow")
# --8<-- [start:one_too_far]
def one_too_far(layer: Reference, num_queries: int, num_keys: int) -> Tensor:
    """The mask ends one diagonal too late, so each token sees the next."""
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(num_keys - num_queries + 1)


# --8<-- [end:one_too_far]


@exhibit("allow")
# --8<-- [start:without_itself]
def without_itself(layer: Reference, num_queries: int, num_keys: int) -> Tensor:
    """The mask ends one diagonal too early, so no token sees itself."""
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(num_keys - num_queries - 1)


# --8<-- [end:without_itself]


@exhibit(
    "allow",
    Publication(
        "pytorch/tutorials",
        "intermediate_source/scaled_dot_product_attention_tutorial.py",
    ),
    issue("shiyu-coder/Kronos", 199, "2025, open"),
)
# --8<-- [start:only_while_training]
def only_while_training(layer: Reference, num_queries: int, num_keys: int) -> _Mask:
    """The causal mask is applied only while training."""
    if not layer.training:
        return None
    return RIGHT.allow(layer, num_queries, num_keys)


# --8<-- [end:only_while_training]


@exhibit("allow", issue("keras-team/keras", 23038, "2026, closed"), dropout=0.2)
# --8<-- [start:lost_with_dropout]
def lost_with_dropout(layer: Reference, num_queries: int, num_keys: int) -> _Mask:
    """The causal mask is left to a fast path, which a layer with dropout avoids."""
    if layer.dropout > 0:
        return None
    return RIGHT.allow(layer, num_queries, num_keys)


# --8<-- [end:lost_with_dropout]


@exhibit(
    "allow",
    pull("pytorch/executorch", 21749, "2026, merged"),
    issue("gittensor-ai-lab/sparkinfer", 3, "2026, closed"),
)
# --8<-- [start:top_left]
def top_left(layer: Reference, num_queries: int, num_keys: int) -> Tensor:
    """The mask is aligned at the top left, so new queries miss the newest keys."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


# --8<-- [end:top_left]


@exhibit("allow", issue("nntrainer/nntrainer", 4333, "2026, open"))
# --8<-- [start:unmasked_chunks]
def unmasked_chunks(layer: Reference, num_queries: int, num_keys: int) -> _Mask:
    """Only the first chunk is masked: tokens of a later one see all of their chunk."""
    if num_queries < num_keys:
        return None
    return RIGHT.allow(layer, num_queries, num_keys)


# --8<-- [end:unmasked_chunks]


@exhibit(
    "hide",
    Publication(
        "pytorch/tutorials",
        "intermediate_source/transformer_building_blocks.py",
    ),
)
# --8<-- [start:padding_ignored]
def padding_ignored(real: Tensor) -> _Mask:
    """The layer takes a mask and does not pass it on, so padding is read."""
    return None


# --8<-- [end:padding_ignored]


@exhibit(
    "hide",
    pull("hyunwoongko/transformer", 40, "2025, open"),
    issue("bentrevett/pytorch-seq2seq", 96, "2020, closed"),
)
# --8<-- [start:padding_on_the_wrong_axis]
def padding_on_the_wrong_axis(real: Tensor) -> _Mask:
    """Padding is hidden as a query instead of as a key."""
    return real[:, None, :, None]


# --8<-- [end:padding_on_the_wrong_axis]
