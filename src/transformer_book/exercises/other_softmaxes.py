"""Graders of *Other softmaxes*."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["grade_keys_touched", "grade_sink"]


def grade_sink(answer: Callable[[Tensor, float], Tensor]) -> str:
    """Grade the weights of a softmax with a sink.

    Args:
        answer: A function of scores, ``(T, S)``, and of the sink's score, that returns
            the weights, ``(T, S)``.
    """
    generator = torch.Generator().manual_seed(0)
    for sink, shape in ((1.5, (3, 5)), (0.0, (2, 4)), (-2.0, (1, 7))):
        scores = torch.randn(shape, generator=generator)
        got = answer(scores, sink)
        assert got.shape == shape, f"the shape is {tuple(got.shape)}, not {shape}"
        top = scores.exp()
        full = top.sum(dim=-1, keepdim=True)
        expected = top / (full + torch.tensor(sink).exp())
        if torch.allclose(got, expected, atol=1e-6):
            continue
        assert not torch.allclose(got, top / full, atol=1e-6), "each row sums to 1"
        assert not torch.allclose(got, top / (full + 1), atol=1e-6), (
            "the sink's score makes no difference"
        )
        assert not torch.allclose(got, top / (full + sink), atol=1e-6), (
            "the sink is a score, like those of the keys"
        )
        raise AssertionError(f"with a sink of {sink} the weights are others")
    large = answer(torch.full((1, 3), 200.0), 0.0)
    assert torch.isfinite(large).all(), "with scores of 200 the weights are not finite"
    return "right"


def grade_keys_touched(answer: Callable[[int, int, int], int]) -> str:
    """Grade how many products the last query of a sequence needs.

    Args:
        answer: A function of the length, the size of a block and how many are chosen,
            that returns how many means and keys the last query is multiplied with.
    """
    for length, size, chosen in ((60, 8, 3), (64, 8, 3), (16, 8, 5), (7, 8, 2)):
        past = (length - 1) // size
        own = length - past * size
        expected = past + own + min(chosen - 1, past) * size
        got = answer(length, size, chosen)
        if got == expected:
            continue
        case = f"{length} tokens in blocks of {size}, {chosen} of them read"
        full = length // size
        assert length % size or got != full + min(chosen - 1, full) * size, (
            "the last token belongs to the block that it ends, its own"
        )
        assert got != expected - past, "choosing costs a product a block, too"
        assert got != expected + 1, "its own block needs no score: it is always read"
        assert got != past + chosen * size, (
            f"{case}: not all of the blocks are there, or full"
        )
        assert got != length, f"{case}: it does not read everything"
        raise AssertionError(f"{case}: it says {got}, not {expected}")
    return "right"
