"""Graders of *Smaller*."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["grade_absorbed_scores", "grade_entry_bytes", "grade_pages_in_use"]


def grade_absorbed_scores(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Grade the scores of queries and latents, computed without making a key.

    Args:
        answer: A function of the queries, ``(H, T, d_k)``, the matrices that make keys,
            ``(H, d_c, d_k)``, and the latents, ``(S, d_c)``.
    """
    generator = torch.Generator().manual_seed(0)
    heads, queries, width, latent_dim, keys = 3, 2, 5, 7, 11
    q, up_k, latents = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in (
            (heads, queries, width),
            (heads, latent_dim, width),
            (keys, latent_dim),
        )
    )
    expected = q @ (latents @ up_k).mT
    with FlopCounterMode(display=False) as counter:
        got = answer(q, up_k, latents)
    assert got.shape == expected.shape, (
        f"the shape is {tuple(got.shape)}, not {tuple(expected.shape)}"
    )
    if not torch.allclose(got, expected):
        scaled = torch.allclose(got * width**0.5, expected)
        assert not scaled, "leave the scale out: these are the plain products"
        softmaxed = torch.allclose(got, expected.softmax(dim=-1))
        assert not softmaxed, "these are weights; the scores come before softmax"
    assert torch.allclose(got, expected), "the shape is right, but not the scores"
    spent = counter.get_total_flops() // 2
    enough = heads * queries * (width * latent_dim + latent_dim * keys)
    assert spent <= enough, (
        f"right, but with {spent} multiplications; {enough} are enough where no key "
        "is made"
    )
    return "right"


def grade_entry_bytes(answer: Callable[[int, int, int, int, int], int]) -> str:
    """Grade the bytes that a sequence takes in the caches of latent attention.

    Args:
        answer: A function of the layers, the heads, the width of the latent, that of
            the rotary part, and the number of tokens; at two bytes a number.
    """
    layers, heads, latent_dim, rotary_dim, tokens = 3, 5, 7, 4, 11
    got = answer(layers, heads, latent_dim, rotary_dim, tokens)
    expected = layers * (latent_dim + rotary_dim) * tokens * 2
    assert got != expected * heads, "the entry serves all heads: it is kept once"
    assert got != 2 * expected, "keys and values are made of one entry: it is kept once"
    assert got != layers * latent_dim * tokens * 2, "the rotary key is kept, too"
    assert got != expected // layers, "each layer keeps its own"
    assert got != expected // 2, "each number has two bytes"
    assert got == expected, f"it says {got} bytes, not {expected}"
    return "right"


def grade_pages_in_use(answer: Callable[[int, list[int], int], int]) -> str:
    """Grade how many pages of a pool answers to one prompt take together.

    Args:
        answer: A function of the tokens of the prompt, the tokens of each answer, and
            the tokens that a page holds.
    """
    cases = [
        (8, [3, 5], 4, 2 + 1 + 2),  # two full pages are shared
        (10, [1, 1, 7], 4, 2 + 1 + 1 + 3),  # the third is copied for each
        (3, [1], 4, 1),
        (3, [2, 4], 4, 2 + 2),
    ]
    for prompt, answers, size, expected in cases:
        got = answer(prompt, answers, size)
        case = f"{answers} tokens after {prompt}, in pages of {size}"
        alone = sum(-(-(prompt + length) // size) for length in answers)
        assert got != alone or alone == expected, (
            f"{case}: {got} pages would be right if nothing were shared"
        )
        begun = -(-prompt // size) + sum(
            -(-(prompt + length) // size) - -(-prompt // size) for length in answers
        )
        assert got != begun or begun == expected, (
            f"{case}: {got} pages would be right if answers shared the page they write"
        )
        assert got == expected, f"{case}: it says {got} pages, not {expected}"
    return "right"
