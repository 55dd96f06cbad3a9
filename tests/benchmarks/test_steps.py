"""What a step of writing takes is measured on a step that is right."""

import torch
from benchmarks.steps import measure_steps, step_call

from tested_transformer.gpt import GPT, GPTConfig
from transformer_book import load_record


def test_a_step_reads_on_top_of_what_is_cached() -> None:
    model = GPT(GPTConfig(vocab_size=5, max_seq_len=9, d_model=6, num_heads=3)).eval()
    call = step_call(model, batch=2, length=3)
    logits = call()
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (2, 1, 5)
    # Each call leaves the cache as the next one finds it.
    torch.testing.assert_close(call(), logits)


def test_the_record_has_what_is_measured() -> None:
    quick, record = measure_steps(quick=True), load_record("steps")["results"]
    assert quick.keys() == record.keys()
    assert quick["products"]["times"].keys() == record["products"]["times"].keys()
    sizes = [(batch, length) for length in (0, 1000) for batch in (1, 2, 4, 8, 16)]
    for measured in (quick, record):
        found = [(each["batch"], each["cached"]) for each in measured["steps"]]
        assert found == sizes
    last = record["steps"][-1]
    assert last["cache_bytes"] == 2 * 8 * 1024 * 1000 * 16 * 4
