"""Answers to the exercises of *Padding*: a right one for each, and wrong ones."""

import torch

from attention_check import EXHIBITS
from tested_transformer.masks import padding_mask
from transformer_book import grade_depends_on_batch, grade_ported_masks
from transformer_book.museum import ExchangeableAttention

LAYER = ExchangeableAttention(d_model=8, num_heads=2)


def ported(key_padding_mask, attn_mask):
    return ~key_padding_mask[:, None, None, :] & ~attn_mask


def as_exhibited(name):
    """Answer with a mask of the bug museum, right but for one slip."""

    def answer(key_padding_mask, attn_mask):
        steps = EXHIBITS[name].steps
        masks = steps.allow(LAYER, *attn_mask.shape), steps.hide(~key_padding_mask)
        allowed = torch.ones((), dtype=torch.bool)
        for mask in masks:
            allowed = allowed if mask is None else allowed & mask
        return allowed

    return answer


def depends_on_batch(model, x, lengths):
    together = model(x, lengths)
    for b, length in enumerate(lengths.tolist()):
        alone = model(x[b : b + 1, :length], lengths[b : b + 1])[0]
        if not torch.allclose(alone, together[b, :length], atol=1e-5):
            return True
    return False


def all_rows(model, x, lengths):
    junk = torch.where(x == 0, torch.randn_like(x), x)
    return not torch.allclose(model(junk, lengths), model(x, lengths), atol=1e-5)


def to_the_bit(model, x, lengths):
    together = model(x, lengths) * (1 + 1e-6)  # what rounding may do
    alone = model(x[1:2, :3], lengths[1:2])
    return not torch.equal(alone[0], together[1, :3])


def other_zeros(model, x, lengths):
    changed = x * padding_mask(lengths, x.shape[1])[:, 0, 0, :, None]
    return not torch.allclose(model(changed, lengths), model(x, lengths), atol=1e-5)


def longest_only(model, x, lengths):
    alone = model(x[:1], lengths[:1])
    return not torch.allclose(alone, model(x, lengths)[:1], atol=1e-5)


def balanced_padding(model, x, lengths):
    junk = x.clone()
    junk[1, 3], junk[1, 4] = 3.0, -3.0  # which leaves every mean as it was
    moved = model(junk, lengths) - model(x, lengths)
    return bool((moved[1, :3].abs() > 1e-5).any())


def junk_in_padding(model, x, lengths):
    real = padding_mask(lengths, x.shape[1])[:, 0, 0]
    junk = torch.where(real[..., None], x, torch.randn_like(x))
    return not torch.allclose(model(junk, lengths)[real], model(x, lengths)[real])


RIGHT = {grade_depends_on_batch: depends_on_batch, grade_ported_masks: ported}
WRONG = {
    grade_depends_on_batch: {
        "a right model is accused": all_rows,
        "allow for rounding": to_the_bit,
        "a model without a mask is passed": other_zeros,
        "without a mask": longest_only,
        "mixes sequences outside of attention": balanced_padding,
        "mixes only the real tokens": junk_in_padding,
    },
    grade_ported_masks: {
        "that one mask forbids": lambda pad, attn: ~pad[:, None, None] | ~attn,
        "True still means": lambda pad, attn: pad[:, None, None] | attn,
        "only where both masks": lambda pad, attn: pad[:, None, None] & attn,
        "of the attention mask": lambda pad, attn: ~pad[:, None, None] & attn,
        "of the padding mask": lambda pad, attn: pad[:, None, None] & ~attn,
        "3 axes": lambda pad, attn: ~pad[:, None, :] & ~attn,
        "not torch.float32": lambda pad, attn: ported(pad, attn).float(),
        "(B, 1, T, S), not (2, 4, 4, 3)": lambda pad, attn: ported(pad, attn).expand(
            2, 4, 4, 3
        ),
        "2 axes": as_exhibited("padding-ignored"),
        "not (2, 1, 1, 3)": as_exhibited("no-causal-mask"),
        "it allows other keys than both": as_exhibited("one-too-far"),
        "it allows other keys than": as_exhibited("without-itself"),
        "it allows other keys": as_exhibited("top-left"),
    },
}
