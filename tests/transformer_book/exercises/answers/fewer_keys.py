"""Answers to the exercises of *Fewer keys*: right ones, and wrong ones."""

from dataclasses import replace

from transformer_book import grade_batch_that_fits, grade_share


def share(k, num_heads):
    batch, kv_heads, length, width = k.shape
    copies = k[:, :, None].expand(batch, kv_heads, num_heads // kv_heads, length, width)
    return copies.reshape(batch, num_heads, length, width)


def share_each_key(k, num_heads):
    batch, kv_heads, length, width = k.shape
    group = num_heads // kv_heads
    copies = k[:, :, :, None].expand(batch, kv_heads, length, group, width)
    return copies.reshape(batch, num_heads, length, width)


def batch_that_fits(config, memory, kinds=2):
    head_dim = config.d_model // config.num_heads
    heads = config.num_kv_heads or config.num_heads
    token = kinds * config.num_layers * heads * head_dim * 2
    return memory // (token * config.max_seq_len)


def for_each_head(config, memory):
    return batch_that_fits(replace(config, num_kv_heads=config.num_heads), memory)


def for_one_layer(config, memory):
    return batch_that_fits(replace(config, num_layers=1), memory)


def as_it_stands(config, memory):
    heads = config.num_kv_heads
    token = 2 * config.num_layers * heads * config.d_model // config.num_heads * 2
    return memory // (token * config.max_seq_len)


RIGHT = {grade_share: share, grade_batch_that_fits: batch_that_fits}
WRONG = {
    grade_share: {
        "dealt out in turn": lambda k, n: k.repeat(1, n // k.shape[1], 1, 1),
        "head 0 has keys of several heads": share_each_key,
        "12 heads for 6": lambda k, num_heads: k.repeat_interleave(num_heads, dim=1),
        "the shape is (2, 2, 5, 3)": lambda k, num_heads: k,
    },
    grade_batch_that_fits: {
        "keys *and* values": lambda *args: batch_that_fits(*args, kinds=1),
        "not every head of queries": for_each_head,
        "each layer keeps its own": for_one_layer,
        "6 sequences": lambda config, memory: batch_that_fits(config, memory) + 1,
        "None if each head": as_it_stands,
    },
}
