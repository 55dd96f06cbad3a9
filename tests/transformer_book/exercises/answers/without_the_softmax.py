"""Answers to the exercises of *Without the softmax*: right ones, and wrong ones."""

from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_hybrid_memory, grade_write


def write(state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float) -> Tensor:
    state = gate * state
    return state + beta * torch.outer(k, v - k @ state)


def write_by_adding(
    state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float
) -> Tensor:
    return gate * state + beta * torch.outer(k, v)


def write_ungated(
    state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float
) -> Tensor:
    return state + beta * torch.outer(k, v - k @ state)


def read_before_fading(
    state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float
) -> Tensor:
    return gate * state + beta * torch.outer(k, v - k @ state)


def write_all(state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float) -> Tensor:
    return write(state, k, v, 1.0, gate)


def write_in_place(
    state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float
) -> Tensor:
    return state.mul_(gate).add_(beta * torch.outer(k, v - k @ state))


def write_turned(
    state: Tensor, k: Tensor, v: Tensor, beta: float, gate: float
) -> Tensor:
    return write(state, k, v, beta, gate).T


def memory(
    length: int,
    layers: int,
    every: int,
    heads: int,
    width: int,
    kinds: int = 2,
    stateful: int | None = None,
) -> int:
    softmax = layers // every
    stateful = layers - softmax if stateful is None else stateful
    return 2 * heads * width * (softmax * kinds * length + stateful * width)


def memory_of_all(length: int, layers: int, every: int, heads: int, width: int) -> int:
    return memory(length, layers, 1, heads, width)


def keys_alone(length: int, layers: int, every: int, heads: int, width: int) -> int:
    return memory(length, layers, every, heads, width, kinds=1)


def state_everywhere(
    length: int, layers: int, every: int, heads: int, width: int
) -> int:
    return memory(length, layers, every, heads, width, stateful=layers)


def state_for_each_token(
    length: int, layers: int, every: int, heads: int, width: int
) -> int:
    stateful = (layers - layers // every) * length
    return memory(length, layers, every, heads, width, stateful=stateful)


def rounded_up(length: int, layers: int, every: int, heads: int, width: int) -> int:
    softmax = -(-layers // every)
    return memory(length, softmax, 1, heads, width, stateful=layers - softmax)


def one_byte(length: int, layers: int, every: int, heads: int, width: int) -> int:
    return memory(length, layers, every, heads, width) // 2


def one_more(length: int, layers: int, every: int, heads: int, width: int) -> int:
    return memory(length, layers, every, heads, width) + 1


RIGHT = {grade_write: write, grade_hybrid_memory: memory}
WRONG: dict[Any, dict[str, Any]] = {
    grade_write: {
        "it adds: what the key held before stays there": write_by_adding,
        "with the gate at 0.6 and beta at 0 the state": write_ungated,
        "with the gate at 0.6 and beta at 0.7 the state": read_before_fading,
        "with the gate at 1 and beta at 0.7 the state": write_all,
        "it changes the state that it was given": write_in_place,
        "the shape is (5, 3)": write_turned,
    },
    grade_hybrid_memory: {
        "not every layer keeps keys and values": memory_of_all,
        "keeps keys *and* values": keys_alone,
        "has no state": state_everywhere,
        "does not grow with the tokens": state_for_each_token,
        "each number has two bytes": one_byte,
        "bytes for 11 tokens": one_more,
        "bytes for 11": rounded_up,
    },
}
