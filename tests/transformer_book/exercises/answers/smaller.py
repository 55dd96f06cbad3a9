"""Answers to the exercises of *Smaller*: right ones, and wrong ones."""

from typing import Any

from torch import Tensor

from transformer_book import (
    grade_absorbed_scores,
    grade_entry_bytes,
    grade_pages_in_use,
)


def absorbed_scores(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return q @ up_k.mT @ latents.T


def scores_of_keys(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return q @ (latents @ up_k).mT


def scaled_scores(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return absorbed_scores(q, up_k, latents) / q.shape[-1] ** 0.5


def weights(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return absorbed_scores(q, up_k, latents).softmax(dim=-1)


def scores_of_one_head(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return q @ up_k[0].mT @ latents.T


def scores_upside_down(q: Tensor, up_k: Tensor, latents: Tensor) -> Tensor:
    return absorbed_scores(q, up_k, latents).mT


def entry_bytes(
    layers: int, heads: int, latent_dim: int, rotary_dim: int, tokens: int
) -> int:
    return layers * (latent_dim + rotary_dim) * tokens * 2


def for_each_head(layers: int, heads: int, *others: int) -> int:
    return heads * entry_bytes(layers, heads, *others)


def keys_and_values(*sizes: int) -> int:
    return 2 * entry_bytes(*sizes)


def without_rotary(
    layers: int, heads: int, latent: int, rotary: int, tokens: int
) -> int:
    return entry_bytes(layers, heads, latent, 0, tokens)


def for_one_layer(layers: int, *others: int) -> int:
    return entry_bytes(1, *others)


def numbers(*sizes: int) -> int:
    return entry_bytes(*sizes) // 2


def one_more(*sizes: int) -> int:
    return entry_bytes(*sizes) + 1


def pages_in_use(prompt: int, answers: list[int], size: int) -> int:
    full = prompt // size
    return full + sum(-(-(prompt + each) // size) - full for each in answers)


def pages_of_all(prompt: int, answers: list[int], size: int) -> int:
    return sum(-(-(prompt + each) // size) for each in answers)


def pages_written_by_all(prompt: int, answers: list[int], size: int) -> int:
    begun = -(-prompt // size)
    return begun + sum(-(-(prompt + each) // size) - begun for each in answers)


def pages_rounded_down(prompt: int, answers: list[int], size: int) -> int:
    full = prompt // size
    return full + sum((prompt + each) // size - full for each in answers)


RIGHT = {
    grade_absorbed_scores: absorbed_scores,
    grade_entry_bytes: entry_bytes,
    grade_pages_in_use: pages_in_use,
}
WRONG: dict[Any, dict[str, Any]] = {
    grade_absorbed_scores: {
        "1485 multiplications; 672 are enough": scores_of_keys,
        "leave the scale out": scaled_scores,
        "these are weights": weights,
        "not the scores": scores_of_one_head,
        "the shape is (3, 11, 2)": scores_upside_down,
    },
    grade_entry_bytes: {
        "the entry serves all heads": for_each_head,
        "keys and values are made of one entry": keys_and_values,
        "the rotary key is kept, too": without_rotary,
        "each layer keeps its own": for_one_layer,
        "each number has two bytes": numbers,
        "it says 727 bytes, not 726": one_more,
    },
    grade_pages_in_use: {
        "if nothing were shared": pages_of_all,
        "answers shared the page they write": pages_written_by_all,
        "it says 3 pages, not 5": pages_rounded_down,
    },
}
