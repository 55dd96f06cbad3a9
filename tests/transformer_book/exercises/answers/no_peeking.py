"""Answers to the exercises of *No peeking*: right ones, and wrong ones."""

import torch
import torch.nn.functional as F

from tested_transformer import attention_with_weights, causal_mask
from transformer_book import grade_in_pieces, grade_packed_mask


def packed_mask(documents):
    return documents_alone(documents) & causal_mask(len(documents))


def documents_alone(documents):
    return documents[:, None] == documents[None, :]


def pieces_of(attend):
    """Return causal attention in pieces, each of which ``attend`` reads."""

    def answer(q, k, v, size):
        ends = range(size, q.shape[-2] + size, size)
        pieces = zip(q.split(size, dim=-2), ends, strict=True)
        return torch.cat(
            [attend(piece, k[..., :end, :], v[..., :end, :]) for piece, end in pieces],
            dim=-2,
        )

    return answer


def lower_right(q, k, v):
    mask = causal_mask(q.shape[-2], k.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def top_left(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def unscaled(q, k, v):
    return attention_with_weights(q * q.shape[-1] ** 0.5, k, v, causal=True)[0]


def own_keys_alone(q, k, v, size):
    pieces = zip(*(x.split(size, dim=-2) for x in (q, k, v)), strict=True)
    return torch.cat([top_left(*piece) for piece in pieces], dim=-2)


RIGHT = {grade_packed_mask: packed_mask, grade_in_pieces: pieces_of(lower_right)}
WRONG = {
    grade_packed_mask: {
        "the second document reads the first": lambda ids: causal_mask(len(ids)),
        "reads the first": lambda d: (d[:, None] <= d) & causal_mask(len(d)),
        "a token reads its own future": documents_alone,
        "reads its own future": lambda documents: documents_alone(documents).tril(1),
        "something allowed is missing": lambda ids: packed_mask(ids).tril(-1),
        "turned around": lambda documents: ~packed_mask(documents),
    },
    grade_in_pieces: {
        "right in the first piece of 3, wrong later": pieces_of(top_left),
        "does a query see those behind it": pieces_of(F.scaled_dot_product_attention),
        "its own keys alone": own_keys_alone,
        "the first piece of 7 is wrong": pieces_of(unscaled),
    },
}
