"""Answers to the exercises of *The key/value cache*: right ones, and wrong ones."""

import torch

from transformer_book import grade_chunk_mask, grade_forget


def chunk_mask(num_new, num_old):
    return torch.ones(num_new, num_old + num_new).tril(num_old).bool()


def top_left(num_new, num_old):
    return torch.ones(num_new, num_old + num_new).tril().bool()


def one_too_few(num_new, num_old):
    return torch.ones(num_new, num_old + num_new).tril(num_old - 1).bool()


def everything(num_new, num_old):
    return torch.ones(num_new, num_old + num_new, dtype=torch.bool)


def a_square(num_new, num_old):
    return torch.ones(num_new, num_new).tril().bool()


def one_too_many(num_new, num_old):
    return torch.ones(num_new, num_old + num_new).tril(num_old + 1).bool()


def forget(cache, count):
    for layer in cache.layers:
        layer.length -= count


def in_the_first_layer(cache, count):
    cache.layers[0].length -= count


def one_only(cache, count):
    for layer in cache.layers:
        layer.length -= 1


def all_but_these(cache, count):
    for layer in cache.layers:
        layer.length = count


def the_first(cache, count):
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, count:], layer.values[:, :, count:]
        layer.length -= count


RIGHT = {grade_chunk_mask: chunk_mask, grade_forget: forget}
WRONG = {
    grade_chunk_mask: {
        "aligned top left": top_left,
        "one key too few": one_too_few,
        "nothing is hidden": everything,
        "the shape is (3, 3)": a_square,
        "3 new on 4 old: [[1, 1, 1, 1, 1, 1, 0]": one_too_many,
        "torch.float32, not boolean": lambda *args: chunk_mask(*args).float(),
    },
    grade_forget: {
        "hold [6, 9] tokens": in_the_first_layer,
        "of 9 tokens 8 are left": one_only,
        "3 tokens are left": all_but_these,
        "old keys were changed": the_first,
    },
}
