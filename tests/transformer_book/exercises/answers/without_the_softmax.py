"""Answers to the exercises of *Without the softmax*: right ones, and wrong ones."""

import torch

from transformer_book import grade_hybrid_memory, grade_write


def write(state, k, v, beta, gate):
    state = gate * state
    return state + beta * torch.outer(k, v - k @ state)


def write_by_adding(state, k, v, beta, gate):
    return gate * state + beta * torch.outer(k, v)


def write_ungated(state, k, v, beta, gate):
    return state + beta * torch.outer(k, v - k @ state)


def read_before_fading(state, k, v, beta, gate):
    return gate * state + beta * torch.outer(k, v - k @ state)


def write_all(state, k, v, beta, gate):
    return write(state, k, v, 1.0, gate)


def write_in_place(state, k, v, beta, gate):
    return state.mul_(gate).add_(beta * torch.outer(k, v - k @ state))


def memory(length, layers, every, heads, width, kinds=2, stateful=None):
    softmax = layers // every
    stateful = layers - softmax if stateful is None else stateful
    return 2 * heads * width * (softmax * kinds * length + stateful * width)


def rounded_up(length, layers, every, heads, width):
    softmax = -(-layers // every)
    return memory(length, softmax, 1, heads, width, stateful=layers - softmax)


RIGHT = {grade_write: write, grade_hybrid_memory: memory}
WRONG = {
    grade_write: {
        "it adds: what the key held before stays there": write_by_adding,
        "with the gate at 0.6 and beta at 0 the state": write_ungated,
        "with the gate at 0.6 and beta at 0.7 the state": read_before_fading,
        "with the gate at 1 and beta at 0.7 the state": write_all,
        "it changes the state that it was given": write_in_place,
        "the shape is (5, 3)": lambda *args: write(*args).T,
    },
    grade_hybrid_memory: {
        "not every layer keeps": lambda t, n, every, *sizes: memory(t, n, 1, *sizes),
        "keeps keys *and* values": lambda *args: memory(*args, kinds=1),
        "has no state": lambda t, n, *sizes: memory(t, n, *sizes, stateful=n),
        "does not grow with the tokens": lambda t, n, every, *sizes: memory(
            t, n, every, *sizes, stateful=(n - n // every) * t
        ),
        "each number has two bytes": lambda *args: memory(*args) // 2,
        "bytes for 11 tokens": lambda *args: memory(*args) + 1,
        "bytes for 11": rounded_up,
    },
}
