"""Answers to the exercises of *A GPT in twenty minutes*: right and wrong ones."""

from functools import partial

import torch

from transformer_book import grade_go_on, grade_reader


def go_on(model, tokens, n, *, read=slice(None), at=-1, chosen=int):
    tokens = list(tokens)
    for _ in range(n):
        logits = model(torch.tensor([tokens[read]]))
        tokens.append(chosen(logits[0, at].argmax()))
    return tokens


def in_place(model, tokens, n):
    tokens += go_on(model, tokens, n)[len(tokens) :]
    return tokens


def without_reading(model, tokens, n):
    logits = model(torch.tensor([tokens]))
    return [*tokens, *[logits[0, -1].argmax().item()] * n]


def flat(model, tokens, n):
    return [*tokens, *[model(torch.tensor(tokens)).argmax().item()] * n]


def reader(weights, query, key):
    per_head = torch.stack([layer[0, :, query, key] for layer in weights])
    return divmod(int(per_head.argmax()), per_head.shape[1])


def any_key(weights, query, key):
    per_head = torch.stack([layer[0, :, query].amax(dim=-1) for layer in weights])
    return divmod(int(per_head.argmax()), per_head.shape[1])


RIGHT = {grade_go_on: go_on, grade_reader: reader}
WRONG = {
    grade_go_on: {
        "the beginning": lambda model, start, n: go_on(model, start, n)[len(start) :],
        "changes the list": in_place,
        "must be read before": without_reading,
        "read all tokens": partial(go_on, read=slice(-1, None)),
        "at the last position": partial(go_on, at=0),
        "must be integers": partial(go_on, chosen=torch.clone),
        "takes (1, T)": flat,
        "are 6, not 7": lambda model, tokens, n: go_on(model, tokens, n + 1),
    },
    grade_reader: {
        "a row is a query": lambda weights, query, key: reader(weights, key, query),
        "the layer comes first": lambda *args: reader(*args)[::-1],
        "another key": any_key,
        "in every layer": lambda weights, query, key: reader(weights[:1], query, key),
        "no weight": lambda *_: (1, 1),
    },
}
