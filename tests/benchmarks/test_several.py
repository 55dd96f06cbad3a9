"""Drafts and batches, and the record that the page on several tokens reads."""

import pytest
import torch
from benchmarks.several import (
    POLICIES,
    add_heads,
    measure_several,
)

from tested_transformer.gpt import GPT, GPTConfig
from transformer_book import load_record


def test_further_heads_leave_the_target_as_it_is() -> None:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=11, max_seq_len=128, d_model=16, num_layers=2)
    target, tokens = GPT(config).eval(), torch.randint(11, (2000,))
    several, losses = add_heads(target, tokens, steps=3, seed=1)
    assert len(losses) == 3
    inputs = tokens[None, :20]
    torch.testing.assert_close(several(inputs), target(inputs))
    first, second = several.further
    assert not torch.equal(first.feed_forward.up.weight, second.feed_forward.up.weight)


@pytest.mark.nightly
def test_the_record_has_what_is_measured() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small to share
    try:
        quick = measure_several(quick=True)
    finally:
        torch.set_num_threads(threads)
    record = load_record("several")["results"]
    (tried,) = quick["drafts"]["targets"].values()
    assert record["drafts"]["seeds"] == record["batches"]["seeds"] == [1, 2, 3]
    for found in record["drafts"]["targets"].values():
        assert found.keys() == tried.keys()
        assert found["written"].keys() == tried["written"].keys()
        for each in found["written"].values():
            assert each["tokens"] == each["passes"] + each["accepted"]
    assert [*record["batches"]["policies"]] == [*POLICIES]
    for served in record["batches"]["policies"].values():
        assert len(served) == 3
        assert served[0].keys() == quick["batches"]["policies"]["static"][0].keys()
