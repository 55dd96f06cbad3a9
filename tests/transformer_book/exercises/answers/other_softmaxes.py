"""Answers to the exercises of *Other softmaxes*: right ones, and wrong ones."""

import torch
import torch.nn.functional as F

from transformer_book import grade_keys_touched, grade_sink


def with_sink(scores, sink):
    return F.pad(scores, (0, 1), value=sink).softmax(dim=-1)[:, :-1]


def sink_kept(scores, sink):
    return F.pad(scores, (0, 1), value=sink).softmax(dim=-1)


def sink_of_one(scores, sink):
    return with_sink(scores, 0.0)


def sink_added(scores, sink):
    top = scores.exp()
    return top / (top.sum(dim=-1, keepdim=True) + sink)


def sink_taken_off(scores, sink):
    return with_sink(scores, -sink)


def overflowing(scores, sink):
    top = scores.exp()
    return top / (top.sum(dim=-1, keepdim=True) + torch.tensor(sink).exp())


def touched(length, size, chosen):
    past = (length - 1) // size
    return past + length - past * size + min(chosen - 1, past) * size


def after_the_block(length, size, chosen):
    past = length // size
    return past + length - past * size + min(chosen - 1, past) * size


def free_choice(length, size, chosen):
    return touched(length, size, chosen) - (length - 1) // size


def full_blocks(length, size, chosen):
    return (length - 1) // size + chosen * size


RIGHT = {grade_sink: with_sink, grade_keys_touched: touched}
WRONG = {
    grade_sink: {
        "the shape is (3, 6), not (3, 5)": sink_kept,
        "each row sums to 1": lambda scores, sink: scores.softmax(dim=-1),
        "the sink's score makes no difference": sink_of_one,
        "the sink is a score, like those of the keys": sink_added,
        "with a sink of 1.5 the weights are others": sink_taken_off,
        "the weights are not finite": overflowing,
    },
    grade_keys_touched: {
        "belongs to the block that it ends": after_the_block,
        "choosing costs a product a block, too": free_choice,
        "its own block needs no score": lambda *args: touched(*args) + 1,
        "not all of the blocks are there, or full": full_blocks,
        "it does not read everything": lambda length, size, chosen: length,
        "it says 35, not 27": lambda length, size, k: touched(length, size, k + 1),
    },
}
