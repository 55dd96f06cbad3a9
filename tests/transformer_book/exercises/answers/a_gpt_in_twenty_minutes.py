"""Answers to the exercises of *A GPT in twenty minutes*: right and wrong ones."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_go_on, grade_reader


def go_on(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(n):
        logits = model(torch.tensor([tokens]))
        tokens.append(logits[0, -1].argmax().item())
    return tokens


def without_the_beginning(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    return go_on(model, tokens, n)[len(tokens) :]


def in_place(model: Any, tokens: list[int], n: int) -> list[int]:
    tokens += go_on(model, tokens, n)[len(tokens) :]
    return tokens


def without_reading(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    logits = model(torch.tensor([tokens]))
    return [*tokens, *[logits[0, -1].argmax().item()] * n]


def one_word_at_a_time(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(n):
        tokens.append(model(torch.tensor([tokens[-1:]]))[0, -1].argmax().item())
    return tokens


def at_the_first(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(n):
        tokens.append(model(torch.tensor([tokens]))[0, 0].argmax().item())
    return tokens


def as_tensors(model: Any, tokens: Sequence[int], n: int) -> list[Any]:
    tokens: list[Any] = list(tokens)
    for _ in range(n):
        tokens.append(model(torch.tensor([tokens]))[0, -1].argmax())
    return tokens


def flat(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    return [*tokens, *[model(torch.tensor(tokens)).argmax().item()] * n]


def one_too_many(model: Any, tokens: Sequence[int], n: int) -> list[int]:
    return go_on(model, tokens, n + 1)


def reader(weights: Sequence[Tensor], query: int, key: int) -> tuple[int, int]:
    found = torch.stack([layer[0, :, query, key] for layer in weights])
    return divmod(int(found.argmax()), found.shape[1])


def turned_around(weights: Sequence[Tensor], query: int, key: int) -> Any:
    return reader(weights, key, query)


def head_first(weights: Sequence[Tensor], query: int, key: int) -> Any:
    return reader(weights, query, key)[::-1]


def any_key(weights: Sequence[Tensor], query: int, key: int) -> Any:
    found = torch.stack([layer[0, :, query].amax(dim=-1) for layer in weights])
    return divmod(int(found.argmax()), found.shape[1])


def in_the_first_layer(weights: Sequence[Tensor], query: int, key: int) -> Any:
    return reader(weights[:1], query, key)


RIGHT = {grade_go_on: go_on, grade_reader: reader}
WRONG: dict[Any, dict[str, Any]] = {
    grade_go_on: {
        "return the beginning": without_the_beginning,
        "changes the list": in_place,
        "must be read before": without_reading,
        "read all tokens": one_word_at_a_time,
        "at the last position": at_the_first,
        "must be integers": as_tensors,
        "takes (1, T)": flat,
        "are 6, not 7": one_too_many,
    },
    grade_reader: {
        "a row is a query": turned_around,
        "the layer comes first": head_first,
        "another key": any_key,
        "in every layer": in_the_first_layer,
        "no weight": lambda *_: (1, 1),
    },
}
