"""Find out how each library reads a mask: those of the tests, and others installed."""

import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.mask_questions import (
    EMPTY_ADDED,
    EMPTY_ATTEND,
    EMPTY_IGNORE,
    HEADS,
    NO_SCORES,
    Attend,
    Mask,
    Row,
    X,
    row,
)
from benchmarks.masks_elsewhere import conversions, have, other_rows
from benchmarks.registry import Results, Run
from tested_transformer import attention_with_weights

__all__ = ["installed_rows", "measure"]


def ours(mask: Mask) -> Sequence[float]:
    """Ask the open attention."""
    given = torch.tensor([mask])
    output, _ = attention_with_weights(NO_SCORES, HEADS, HEADS, mask=given)
    return output[0, 0, 0, :3].tolist()


def sdpa(mask: Mask) -> Sequence[float]:
    """Ask ``F.scaled_dot_product_attention``."""
    given = torch.tensor([mask])
    output = F.scaled_dot_product_attention(NO_SCORES, HEADS, HEADS, attn_mask=given)
    return output[0, 0, 0, :3].tolist()


def sdpa_math(mask: Mask) -> Sequence[float]:
    """Ask PyTorch's plain kernel."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(mask)


def flex_block_mask(mask: Mask) -> Sequence[float]:
    """Ask FlexAttention, with the mask as its ``mask_mod``."""
    given = torch.tensor(mask)
    block_mask = create_block_mask(
        lambda b, h, t, s: given[s], None, None, 3, 3, device="cpu"
    )
    return _flex(block_mask=block_mask)


def flex_score_mod(mask: Mask) -> Sequence[float]:
    """Ask FlexAttention, with a ``score_mod`` that adds the mask."""
    given = torch.tensor(mask)
    return _flex(score_mod=lambda score, b, h, t, s: score + given[s])


def _flex(**how: object) -> Sequence[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow without being compiled
        return flex_attention(NO_SCORES, HEADS, HEADS, **how)[0, 0, 0, :3].tolist()


def module(argument: str, *, weights: bool, training: bool) -> Attend:
    """Ask ``nn.MultiheadAttention`` through one of its mask arguments."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).train(training)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([torch.zeros(8, 4), torch.eye(4)]))
        layer.out_proj.weight.copy_(torch.eye(4))

    def attend(mask: Mask) -> Sequence[float]:
        given = torch.tensor([mask])
        given = given.expand(3, 3) if argument == "attn_mask" else given
        with torch.set_grad_enabled(training):
            output, _ = layer(X, X, X, need_weights=weights, **{argument: given})
        return output[0, 0, :3].tolist()

    return attend


def bert(implementation: str, *, axes: int = 2) -> Attend:
    """Ask BERT of ``transformers``, by an ``attention_mask`` of two or four axes."""
    from transformers import BertConfig
    from transformers.masking_utils import create_bidirectional_mask
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(
        hidden_size=4, num_attention_heads=2, attn_implementation=implementation
    )
    layer = BertSelfAttention(config).eval()
    _read_values(layer.query, layer.key, layer.value)

    def attend(mask: Mask) -> Sequence[float]:
        given = torch.tensor([mask])
        given = given.expand(1, 1, 3, 3) if axes == 4 else given
        made = create_bidirectional_mask(
            config=config, inputs_embeds=X, attention_mask=given
        )
        return layer(X, attention_mask=made)[0][0, 0, :3].tolist()

    return attend


@torch.no_grad()
def _read_values(query: nn.Linear, key: nn.Linear, value: nn.Linear) -> None:
    for projection in (query, key, value):
        projection.weight.zero_()
        projection.bias.zero_()
    value.weight.copy_(torch.eye(4))


def installed_rows() -> dict[str, Row]:
    """Ask the libraries that the tests need: this one, PyTorch and ``transformers``."""
    rows = {
        "this library": row(ours),
        "SDPA": row(sdpa),
        "SDPA, plain kernel": row(sdpa_math),
        "FlexAttention, block_mask": row(flex_block_mask),
        "FlexAttention, score + mask": row(flex_score_mod, empty=EMPTY_ADDED),
    }
    for training in (True, False):
        for weights in (True, False):
            how = {"weights": weights, "training": training}
            by_pair = row(module("attn_mask", **how), empty=EMPTY_IGNORE)
            by_key = row(module("key_padding_mask", **how), empty=EMPTY_IGNORE)
            name = "nn.MultiheadAttention, {}, {}".format(
                "training" if training else "inference",
                "weights" if weights else "no weights",
            )
            rows[name] = by_pair
            if by_key != by_pair:
                rows[f"{name}, key_padding_mask"] = by_key
    for implementation in ("eager", "sdpa"):
        for axes in (2, 4):
            name = f"Transformers' BERT, {implementation}, {axes} axes"
            added = (implementation, axes) == ("eager", 4)
            empty = EMPTY_ADDED if added else EMPTY_ATTEND
            rows[name] = row(bert(implementation, axes=axes), empty=empty)
    return rows


def measure(run: Run) -> Results:
    """Ask every installed library, and record the versions."""
    packages = ("torch", "transformers", "keras", "flax", "jax")
    return {
        "versions": {
            package: version(package) if have(package) else "not measured"
            for package in packages
        },
        "keras_backend": os.environ.get("KERAS_BACKEND", "torch"),
        "rows": installed_rows() | other_rows(),
        "conversions": conversions(),
    }
