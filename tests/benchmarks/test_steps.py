"""What a step of writing takes is measured on a step that is right."""

import torch
from benchmarks.steps import step_call

from tested_transformer.gpt import GPT, GPTConfig


def test_a_step_reads_on_top_of_what_is_cached() -> None:
    model = GPT(GPTConfig(vocab_size=5, max_seq_len=9, d_model=6, num_heads=3)).eval()
    call = step_call(model, batch=2, length=3)
    logits = call()
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (2, 1, 5)
    # Each call leaves the cache as the next one finds it.
    torch.testing.assert_close(call(), logits)
