"""Answers to the exercises of *The key/value cache*: right ones, and wrong ones."""

from functools import partial

import torch

from transformer_book import grade_chunk_mask, grade_forget


def chunk_mask(num_new, num_old, *, further=0):
    return torch.ones(num_new, num_old + num_new).tril(num_old + further).bool()


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
        "aligned top left": lambda new, old: chunk_mask(new, old, further=-old),
        "one key too few": lambda *args: chunk_mask(*args, further=-1),
        "nothing is hidden": lambda new, old: chunk_mask(new, old, further=new),
        "the shape is (3, 3)": lambda new, old: chunk_mask(new, 0),
        "3 new on 4 old: [[1, 1, 1, 1, 1, 1, 0]": partial(chunk_mask, further=1),
        "torch.float32, not boolean": lambda *args: chunk_mask(*args).float(),
    },
    grade_forget: {
        "hold [6, 9] tokens": in_the_first_layer,
        "of 9 tokens 8 are left": one_only,
        "3 tokens are left": all_but_these,
        "old keys were changed": the_first,
    },
}
