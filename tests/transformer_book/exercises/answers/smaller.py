"""Answers to the exercises of *Smaller*: right ones, and wrong ones."""

from transformer_book import (
    grade_absorbed_scores,
    grade_entry_bytes,
    grade_pages_in_use,
)


def absorbed_scores(q, up_k, latents):
    return q @ up_k.mT @ latents.T


def scaled_scores(q, up_k, latents):
    return absorbed_scores(q, up_k, latents) / q.shape[-1] ** 0.5


def entry_bytes(layers, heads, latent_dim, rotary_dim, tokens):
    return layers * (latent_dim + rotary_dim) * tokens * 2


def for_each_head(layers, heads, *others):
    return heads * entry_bytes(layers, heads, *others)


def without_rotary(layers, heads, latent, rotary, tokens):
    return entry_bytes(layers, heads, latent, 0, tokens)


def pages_in_use(prompt, answers, size):
    full = prompt // size
    return full + sum(-(-(prompt + answer) // size) - full for answer in answers)


def pages_of_all(prompt, answers, size):
    return sum(-(-(prompt + answer) // size) for answer in answers)


def pages_written_by_all(prompt, answers, size):
    begun = -(-prompt // size)
    return begun + sum(-(-(prompt + answer) // size) - begun for answer in answers)


def pages_rounded_down(prompt, answers, size):
    full = prompt // size
    return full + sum((prompt + answer) // size - full for answer in answers)


RIGHT = {
    grade_absorbed_scores: absorbed_scores,
    grade_entry_bytes: entry_bytes,
    grade_pages_in_use: pages_in_use,
}
WRONG = {
    grade_absorbed_scores: {
        "1485 multiplications; 672 are enough": lambda q, up_k, c: q @ (c @ up_k).mT,
        "leave the scale out": scaled_scores,
        "these are weights": lambda *args: absorbed_scores(*args).softmax(dim=-1),
        "not the scores": lambda q, up_k, latents: q @ up_k[0].mT @ latents.T,
        "the shape is (3, 11, 2)": lambda *args: absorbed_scores(*args).mT,
    },
    grade_entry_bytes: {
        "the entry serves all heads": for_each_head,
        "keys and values are made of one entry": lambda *sizes: 2 * entry_bytes(*sizes),
        "the rotary key is kept, too": without_rotary,
        "each layer keeps its own": lambda layers, *others: entry_bytes(1, *others),
        "each number has two bytes": lambda *sizes: entry_bytes(*sizes) // 2,
        "it says 727 bytes, not 726": lambda *sizes: entry_bytes(*sizes) + 1,
    },
    grade_pages_in_use: {
        "if nothing were shared": pages_of_all,
        "answers shared the page they write": pages_written_by_all,
        "it says 3 pages, not 5": pages_rounded_down,
    },
}
