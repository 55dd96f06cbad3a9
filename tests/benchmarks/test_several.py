"""Drafts and batches, and the record that the page on several tokens reads."""

import torch
from benchmarks.several import add_heads

from tested_transformer.gpt import GPT, GPTConfig


def test_further_heads_leave_the_target_as_it_is() -> None:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=11, max_seq_len=128, d_model=16, num_layers=2)
    target, tokens = GPT(config).eval(), torch.randint(11, (2000,))
    several, losses = add_heads(target, tokens, steps=3, seed=1)
    assert len(losses) == 3
    inputs = tokens[None, :20]
    torch.testing.assert_close(several(inputs)[0], target(inputs))
    first, second = several.further
    assert not torch.equal(first.feed_forward.up.weight, second.feed_forward.up.weight)
