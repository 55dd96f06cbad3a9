"""Graders of *Without the softmax*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.attentions import recurrent_delta_rule

__all__ = ["grade_hybrid_memory", "grade_write"]


def grade_write(
    answer: Callable[[Tensor, Tensor, Tensor, float, float], Tensor],
) -> str:
    """Grade one step of the gated delta rule, for one head.

    Args:
        answer: A function of the state, ``(d_k, d_v)``, a key, a value, beta and the
            gate, between 0 and 1, that returns the state after the step.
    """
    generator = torch.Generator().manual_seed(0)
    for d_k, d_v in ((3, 5), (4, 2)):
        state = torch.randn(d_k, d_v, generator=generator)
        k = torch.randn(d_k, generator=generator)
        v = torch.randn(d_v, generator=generator)
        k = k / k.norm()
        untouched = state.clone()
        got = answer(state, k, v, 0.7, 0.6)
        assert torch.equal(state, untouched), "it changes the state that it was given"
        assert got.shape == (d_k, d_v), f"the shape is {tuple(got.shape)}"
        for what, beta, gate in (
            ("with the gate at 1 and beta at 1", 1.0, 1.0),
            ("with the gate at 1 and beta at 0.7", 0.7, 1.0),
            ("with the gate at 0.6 and beta at 0", 0.0, 0.6),
            ("with the gate at 0.6 and beta at 0.7", 0.7, 0.6),
        ):
            key, value = k[None, None, None], v[None, None, None]
            _, expected = recurrent_delta_rule(
                key,
                key,
                value,
                torch.full((1, 1, 1), beta),
                log_decay=torch.full((1, 1, 1), gate).log(),
                state=state[None, None],
            )
            written = answer(state, k, v, beta, gate)
            close = torch.allclose(written, expected[0, 0], atol=1e-6)
            added = torch.allclose(
                got, 0.6 * state + 0.7 * torch.outer(k, v), atol=1e-6
            )
            assert close or not added, "it adds: what the key held before stays there"
            assert close, f"{what} the state is another"
    return "right"


def grade_hybrid_memory(answer: Callable[[int, int, int, int, int], int]) -> str:
    """Grade how many bytes a hybrid caches for one sequence, at two bytes per number.

    Args:
        answer: A function of the number of tokens, of layers, every which of these is
            softmax attention, the number of heads, and their width.
    """
    for length, layers, every, heads, width in ((11, 7, 3, 2, 5), (700, 8, 4, 3, 7)):
        softmax = layers // every
        cache, state = 2 * heads * length * width * 2, heads * width * width * 2
        got = answer(length, layers, every, heads, width)
        right = softmax * cache + (layers - softmax) * state
        if got != right:
            assert got != right // 2, "each number has two bytes"
            assert got != layers * cache, "not every layer keeps keys and values"
            assert got != softmax * cache + layers * state, (
                "a layer of softmax attention has no state"
            )
            assert got != softmax * cache + (layers - softmax) * state * length, (
                "a state does not grow with the tokens"
            )
            keys = softmax * cache // 2 + (layers - softmax) * state
            assert got != keys, "softmax attention keeps keys *and* values"
        assert got == right, f"it says {got} bytes for {length} tokens, not {right}"
    return "right"
